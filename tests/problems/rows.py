"""The rows that the file of an op holds, for all tests that walk over the ops (``registry``):
``OPS``, by the name of what computes something, and ``CALLS``, by the name of the op. Where the op
trains, ``TRAINED`` has calls whose derivatives are compared with those of ``exact``; where it has a
rule for DTensors, ``SHARDED`` those that two processes share.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from .covering import Row, Rules, all_pairs, may_meet, random_row
from .lattice import Sample

HALF = torch.float16
GEMM_SIZES = {"m": 700, "n": 1500, "k": 4200}
CONV_SIZES = {"in_c": 300, "out_c": 300, "images": 9}
N, K = 72, 96  # of the small calls
CUT_M, CUT_N, CUT_K, CUT_GROUP = 6, 256, 64, 32  # of the calls that ranks share


@dataclass(frozen=True)
class Op:
    """What computes something, and what its problems turn on.

    cost: of a case, in multiplications.
    sizes: fields that are any number up to the limit, when drawn at random.
    typical: problems for what every kernel must keep (python/support/promises.py): ragged ones with
        all optional tensors, large ones whose work is shared out, one of each way that it runs.
    forced: whether it chooses among configurations.
    """

    case: type
    factors: dict[str, tuple[Any, ...]]
    make: Callable[..., Any]
    cost: Callable[[Any], int]
    rules: Rules
    sizes: dict[str, int]
    typical: tuple[Any, ...]
    from_row: Callable[[Row], Any] | None = None
    forced: bool = False

    def of(self, row: Row) -> Any:
        return self.from_row(row) if self.from_row else self.case(**row)

    def pairs(self, seed: int = 0, **fixed: tuple[Any, ...]) -> Iterator[Any]:
        """Cases in which every two values meet. ``fixed``: other values of a factor."""
        for row in all_pairs({**self.factors, **fixed}, self.rules, seed):
            yield self.of(row)

    def draw(self, rng: random.Random, most: int, **fixed: tuple[Any, ...]) -> Any:
        """One case at random that costs ``most`` at most, sizes from the table of factors or any
        numbers."""
        factors = {**self.factors, **fixed}
        while True:
            free = {
                name: (_any_size(rng, limit),)
                for name, limit in self.sizes.items()
                if name not in fixed and rng.random() < 0.5
            }
            row = {name: rng.choice(values) for name, values in {**factors, **free}.items()}
            if may_meet(self.rules, row):
                case = self.of(row)
                if self.cost(case) <= most:
                    return case

    def neighbours(self, row: Row, rng: random.Random, each: int = 2) -> Iterator[tuple[Row, str]]:
        """Rows that differ from ``row`` in one field, and the name of its factor."""
        for name, values in self.factors.items():
            others = [v for v in values if v != row[name]]
            if name == "scheme":  # of two fields
                old = row[name]
                others = [v for v in others if (v[0] == old[0]) != (v[1] == old[1])]
            for value in rng.sample(others, min(each, len(others))):
                other = {**row, name: value}
                if may_meet(self.rules, other):
                    yield other, name

    def draw_row(self, rng: random.Random, most: int) -> Row:
        while True:
            row = random_row(self.factors, self.rules, rng)
            if self.cost(self.of(row)) <= most:
                return row


def _any_size(rng: random.Random, limit: int) -> int:
    """1..limit, as many small as large ones."""
    return min(limit, int(math.exp(rng.uniform(0, math.log(limit + 1)))))


def cost_of_packing(case: Any) -> int:
    return case.n * case.k if hasattr(case, "k") else case.out_c * case.in_c


@dataclass(frozen=True)
class Call:
    """``make``: a call on the lattice, of any size. ``small``: what it is asked for in the tests of
    refusals, which change one argument of it; with all optional tensors. ``cases``: what
    tests/smoke.py runs."""

    make: Callable[..., Sample]
    small: dict[str, Any]
    cases: tuple[Any, ...] = ()

    def of_refusals(self) -> dict[str, Any]:
        return self.make(**self.small).arguments
