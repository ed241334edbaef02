"""Every op on the CPU over arrays of cases in which every two values meet, and at random; against
float64 or bit by bit. What no pair holds, large or single, is listed as CORNERS.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from problems import registry
from problems.awq import AwqCase
from problems.block import BlockCase
from problems.conv import ConvCase
from problems.conv_int8 import ConvInt8Case
from problems.gemm import Case
from problems.scaled import ScaledCase
from problems.scaled_dynamic import ScaledDynamicCase
from support import tried
from torch import Tensor

PARTS = 4  # of each array, for the workers of pytest-xdist
F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32

CORNERS: tuple[Any, ...] = (
    *(Case(m, 256, 4096, t, 4, 128, "sub", True) for m in (1, 6, 300) for t in (F16, BF16, F32)),
    *(Case(m, 200, 4104, t, 8, -1, "add", True) for m in (1, 6, 300) for t in (F16, BF16, F32)),
    Case(1, 1, 1),
    ScaledCase(257, 66, 4100, F32, azp="per_row", bias=True),
    ScaledCase(1, 1, 1, operand=torch.float8_e4m3fn),
    ScaledDynamicCase(600, 66, 1024, BF16, azp=True, bias=True),  # rows that threads share out
    ScaledDynamicCase(4100, 3, 70, F32, spoiled="nan"),  # more rows than are prepared at once
    BlockCase(1100, 50, 40, block_size=16),
    BlockCase(2, 300, 4096, BF16, 128),
    AwqCase("gemm", 40, 2056, 9216, 72),  # two wide slices
    ConvCase(1, 1, 1, (1, 1), (1, 1), padding=(0, 0)),
    ConvCase(1, 64, 64, (1, 1), (3, 3), dtype=BF16),
    ConvCase(32, 20, 33, (3, 4), bits=8, offsets=True),
    ConvCase(1, 5, 9, (2, 2), (7, 7), padding=(6, 6), bias=True),
    ConvCase(2, 3, 70, (17, 19), (7, 7), (2, 2), (3, 3), bias=True),  # the first of a ResNet
    ConvCase(2, 64, 40, (9, 9), (1, 1), (2, 2), (0, 0), block_size=48),  # and its shortcut
    ConvCase(1, 130, 40, (1, 300), (1, 3), (1, 1), (0, 1), dtype=F32),
    ConvCase(1, 130, 40, (300, 1), (3, 1), (1, 1), (1, 0), block_size=128),
    ConvCase(1, 600, 16, (12, 20), offsets=True),  # more rows than one block gathers
    ConvInt8Case(32, 19, 21, (3, 3), input_zero_point=17, bias=True),
    ConvInt8Case(1, 40, 20, (70, 70)),  # more rows than one block gathers
)


@functools.cache
def pairs_of(op: str) -> tuple[Any, ...]:
    return tuple(registry.OPS[op].pairs())


def storages(problem: Any) -> list[Tensor]:
    """The bytes under every tensor of a problem, margins and gaps included."""
    tensors = [x for x in vars(problem).values() if isinstance(x, Tensor)]
    return [torch.empty(0, dtype=torch.uint8).set_(x.untyped_storage()) for x in tensors]


def wrong_ones(cases: Iterable[Any]) -> list[str]:
    """What each case that fails is and how, its repr first: `eval` makes it again."""
    found: list[str] = []
    for case in cases:
        before_it = len(found)
        judge(case, found)
        tried.note("cases", registry.op_of(case), 1, len(found) - before_it)
    return found


def judge(case: Any, found: list[str]) -> None:
    try:
        problem = registry.make(case)
        before = [x.clone() for x in storages(problem)]
        ratio = float(problem.verdict(problem.run()))
        changed = any(not torch.equal(x, y) for x, y in zip(before, storages(problem), strict=True))
    except Exception as error:
        found.append(f"{case!r}: {type(error).__name__}: {error}")
        return
    if not ratio <= 1 or changed:
        found.append(f"{case!r}: {ratio:.3g} of the bound, inputs changed: {changed}")


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("op", registry.OPS)
def test_every_two_values_together(op: str, part: int) -> None:
    cases = pairs_of(op)[part::PARTS]
    assert len(cases) > 20
    assert wrong_ones(cases) == []


@pytest.mark.parametrize("op", registry.OPS)
def test_at_random(op: str) -> None:
    rng = random.Random(0)
    cases = [registry.OPS[op].draw(rng, 1 << 19) for _ in range(60)]
    assert wrong_ones(cases) == []


@pytest.mark.parametrize("part", range(PARTS))
def test_corners(part: int) -> None:
    assert wrong_ones(CORNERS[part::PARTS]) == []


@pytest.mark.parametrize("op", registry.OPS)
def test_one_after_another_that_differs_in_one_thing(op: str) -> None:
    """What remembers the last problem must not take the next one for it."""
    rng, table = random.Random(1), registry.OPS[op]
    row = table.draw_row(rng, 1 << 17)
    first, failed = registry.make(table.of(row)), []
    for other_row, factor in table.neighbours(row, rng, each=1):
        if table.cost(table.of(other_row)) > 1 << 20:
            continue
        other = registry.make(table.of(other_row))
        first.run()
        there, back = other.run(), first.run()
        if not (float(other.verdict(there)) <= 1 and float(first.verdict(back)) <= 1):
            failed.append((factor, first.case, other.case))
    assert failed == []
