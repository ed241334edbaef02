"""pack_weights and pack_conv_weights refuse integers outside the range of ``bits``; the text has
the first of them."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import mixed_gemm

SHAPES = {"pack_weights": (70, 130), "pack_conv_weights": (5, 9, 3, 2)}
OPS = [(op, call) for op in SHAPES for call in ("python", "raw")]


def pack(op: str, call: str, q: torch.Tensor, bits: int, **options: Any) -> torch.Tensor:
    where = mixed_gemm if call == "python" else torch.ops.mixed_gemm
    packed: torch.Tensor = getattr(where, op)(q, bits, **options)
    return packed


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("value", [-128, -9, 8, 15, 127])
@pytest.mark.parametrize(("op", "call"), OPS)
def test_a_value_outside_is_refused_with_its_index(
    op: str, call: str, value: int, check: bool
) -> None:
    shape = SHAPES[op]
    q = torch.randint(-8, 8, shape, dtype=torch.int8)
    index = tuple(extent - 1 for extent in shape)
    q[index] = value
    text = f"mixed_gemm::{op}: q must be in -8..7 for bits=4, got {value} at index {index}"
    error = ValueError if call == "python" else RuntimeError
    with pytest.raises(error, match=f"^{re.escape(text)}. Hint: "):
        pack(op, call, q, 4, check=check)
    first = tuple(0 for _ in shape)
    q[first] = 100
    with pytest.raises(error, match=re.escape(f"got {int(q[first])} at index {first}.")):
        pack(op, call, q, 4, check=check)
    assert pack(op, call, q, 8, check=check).dtype == torch.uint8


@pytest.mark.parametrize(("op", "call"), OPS)
def test_the_index_is_that_of_the_argument_whatever_its_strides(op: str, call: str) -> None:
    q = torch.zeros(SHAPES[op], dtype=torch.int8).transpose(0, 1)
    index = (1, 3, 0, 0)[: q.dim()]
    q[index] = 9
    error = ValueError if call == "python" else RuntimeError
    with pytest.raises(error, match=re.escape(f"got 9 at index {index}")):
        pack(op, call, q, 4)


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("op", SHAPES)
def test_the_whole_range_is_packed_as_before(op: str, check: bool) -> None:
    for bits in (4, 8):
        low, high = -(2 ** (bits - 1)), 2 ** (bits - 1)
        q = torch.randint(low, high, SHAPES[op], dtype=torch.int8)
        q.view(-1)[:2] = torch.tensor([low, high - 1])
        packed = pack(op, "raw", q, bits, check=check)
        assert torch.equal(packed, pack(op, "python", q, bits))
        if op == "pack_weights":
            assert torch.equal(mixed_gemm.unpack_weights(packed, bits, *q.shape), q)


@pytest.mark.parametrize("op", SHAPES)
def test_nothing_and_meta_have_no_values(op: str) -> None:
    q = torch.full(SHAPES[op], 9, dtype=torch.int8, device="meta")
    assert pack(op, "python", q, 4, check=True).is_meta
    if op == "pack_weights":
        assert (
            mixed_gemm.pack_weights(torch.zeros(0, 4, dtype=torch.int8), 4, check=True).numel() == 0
        )


@pytest.mark.parametrize("op", SHAPES)
def test_opcheck_with_the_keyword(op: str) -> None:
    q = torch.randint(-8, 8, SHAPES[op], dtype=torch.int8)
    for options in ({}, {"check": True}):
        torch.library.opcheck(getattr(torch.ops.mixed_gemm, op).default, (q, 4), options)
