"""Every configuration of every family over arrays of cases in which every two values meet: group
and zero point count as one, so that each of their pairs meets each depth, at every configuration.
The op's own choice, and the ops without configurations, over the arrays of tests/python.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from problems import registry
from problems.placing import poison_free_memory
from support.settings import without_tf32

pytestmark = pytest.mark.gpu

PARTS = 8  # of each array, for the workers of pytest-xdist
# What an array leaves out here: every problem runs on hundreds of configurations.
FEWER: dict[str, dict[str, tuple[Any, ...]]] = {
    "fpA_intB_gemm": {
        "m": (1, 2, 8, 9, 17, 33, 64, 130, 257),
        "n": (1, 63, 64, 72, 129, 200, 264, 513),
        "k": (1, 16, 33, 64, 77, 129, 257, 320, 512, 513, 777, 1000, 1001),
        "dtype": (torch.float16, torch.bfloat16),
    },
    **{
        op: {
            "m": (1, 2, 9, 17, 33, 64, 130, 257),
            "n": (1, 64, 72, 129, 264),
            "k": (16, 33, 64, 129, 320, 777, 1000),
        }
        for op in ("grouped_fpA_intB_gemm", "grouped_fpA_fpB_gemm")
    },
    "fpA_fpB_gemm": {
        "m": (1, 2, 9, 17, 64, 257),
        "n": (1, 64, 129, 264),
        "k": (16, 33, 64, 129, 320, 777, 1000),
        "dtype": (torch.float16, torch.bfloat16),
    },
    "scaled_mm": {"k": (0, 1, 16, 31, 64, 127, 129, 257, 513, 777, 1024, 2049)},
    "block_quant_gemm": {"k": (1, 16, 31, 64, 100, 127, 129, 257, 513, 777, 1024)},
}
READ_AT_ONCE = 64


@pytest.fixture(autouse=True)
def no_tf32():
    with without_tf32():
        yield


@functools.cache
def array_of(op: str) -> tuple[Any, ...]:
    return tuple(registry.OPS[op].pairs(**FEWER.get(op, {})))


class Worst:
    """Reads the ratios of many calls back at once; what was wrong with its repr."""

    def __init__(self, record: Any) -> None:
        self.record, self.calls = record, 0
        self.waiting: list[tuple[str, str, torch.Tensor]] = []
        self.wrong: list[str] = []

    def add(self, name: str, case: Any, ratio: torch.Tensor) -> None:
        self.calls += 1
        self.waiting.append((name, repr(case), ratio))
        if len(self.waiting) == READ_AT_ONCE:
            self.read()

    def read(self) -> None:
        ratios = torch.stack([ratio for _, _, ratio in self.waiting]).tolist()
        for (name, case, _), ratio in zip(self.waiting, ratios, strict=True):
            if ratio <= 1:
                self.record(name, ratio)
            else:
                self.wrong.append(f"{name}: {ratio:.3g} of the bound at {case}")
        self.waiting = []

    def finish(self) -> None:
        if self.waiting:
            self.read()
        assert self.calls > 0
        assert not self.wrong, "\n".join([f"{len(self.wrong)} wrong", *self.wrong[:40]])


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("op", registry.FORCED)
def test_every_configuration_meets_every_two_values(record, op, part):
    worst = Worst(record)
    for case in array_of(op)[part::PARTS]:
        problem = registry.make(case, "cuda", "cuda")
        poison_free_memory("cuda", (1 << 16, 1 << 20, 1 << 22))
        for config in problem.configs():
            worst.add(f"{op}-{config}", case, problem.verdict(problem.run(config=config), config))
    worst.finish()


@pytest.mark.parametrize("op", registry.OPS)
def test_the_choice_for_every_two_values(record, op):
    worst = Worst(record)
    for case in registry.OPS[op].pairs(seed=1):
        problem = registry.make(case, "cuda", "cuda")
        poison_free_memory("cuda", (1 << 16, 1 << 20))
        worst.add(f"{op}-selected", case, problem.verdict(problem.run()))
    worst.finish()
