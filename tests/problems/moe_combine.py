"""Problems of moe_combine; the oracle is exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import mixed_gemm
from mixed_gemm.reference import moe as reference_moe

from . import verdict
from .covering import Rules
from .gemm import DEPTHS, DTYPES, ROWS
from .lattice import FLOAT, Sample, integers, powers
from .placing import PLACES, place, place_unchanged, poison_output
from .rows import CUT_K, CUT_M, HALF, Call, K, Op
from .values import Values


@dataclass(frozen=True)
class CombineCase:
    """``same``: weights in the dtype of the rows. ``holes``: positions of -1."""

    m: int = 5
    k: int = 40
    dtype: torch.dtype = torch.float16
    top_k: int = 2
    same: bool = False
    holes: bool = True
    a_place: str = "alone"
    positions_place: str = "alone"
    weights_place: str = "alone"


FACTORS: dict[str, tuple[Any, ...]] = {
    "m": ROWS,
    "k": DEPTHS,
    "dtype": DTYPES,
    "top_k": (0, 1, 2, 3, 4, 5, 8, 10),
    "same": (False, True),
    "holes": (False, True),
    "a_place": PLACES,
    "positions_place": PLACES,
    "weights_place": PLACES,
}
RULES: Rules = {}


@dataclass
class CombineProblem:
    case: CombineCase
    a: Tensor
    positions: Tensor
    weights: Tensor

    def run(self, config: str | None = None) -> Tensor:
        poison_output((self.case.m, self.case.k), self.a)
        return mixed_gemm.moe_combine(self.a, self.positions, self.weights)

    def configs(self) -> list[str]:
        return []

    def verdict(self, out: Tensor, config: str | None = None) -> Tensor:
        given = (x.cpu() for x in (self.a, self.positions, self.weights))
        return verdict.exact(out.cpu(), reference_moe.moe_combine(*given)).to(out.device)


def make(
    case: CombineCase, device: str = "cpu", seed: int = 0, drawn_on: str = "cpu"
) -> CombineProblem:
    values = Values(device, seed, drawn_on)
    count = case.m * case.top_k
    rows = values.normal(count, case.k).to(case.dtype)
    positions = values.permutation(count).int()
    if case.holes:
        has_none = values.uniform(count) < 0.3
        rows[positions[has_none].long()] = float("nan")  # that nobody takes
        positions = torch.where(has_none, -1, positions)
    weights = values.uniform(case.m, case.top_k).to(case.dtype if case.same else FLOAT)
    return CombineProblem(
        case,
        place(rows, case.a_place),
        place_unchanged(positions.view(case.m, case.top_k), case.positions_place),
        place(weights, case.weights_place),
    )


def cost(case: CombineCase) -> int:
    return max(case.m, 1) * max(case.top_k, 1) * max(case.k, 1)


def sample(
    tokens: int = 3, k: int = 8, top_k: int = 2, holes: int = 1, dtype: torch.dtype = FLOAT
) -> Sample:
    """``holes``: tokens without a row."""
    count = tokens * top_k
    positions = torch.randperm(count).view(tokens, top_k).int()
    positions[:holes] = -1
    has_row = (positions >= 0).unsqueeze(-1)

    def exact(rows: Tensor, weights: Tensor) -> Tensor:
        taken = rows[positions.clamp(min=0).long().flatten()].view(tokens, top_k, k)
        return (taken * weights.unsqueeze(-1) * has_row).sum(1)

    given = {
        "rows": integers(count, k, dtype=dtype),
        "positions": positions,
        "weights": powers(tokens, top_k, dtype=dtype),
    }
    return Sample("moe_combine", given, ("rows", "weights"), exact)


OPS = {
    "moe_combine": Op(
        CombineCase, FACTORS, make, cost, RULES, {"m": 700, "k": 3000},
        typical=(
            CombineCase(12, 328, HALF, 4),
            CombineCase(12, 77, torch.float32, 3),
            CombineCase(70, 512, torch.bfloat16, 8, same=True, holes=False),
        ),
    ),
}  # fmt: skip
CALLS = {
    "moe_combine": Call(
        sample,
        {"k": K, "holes": 3},  # positions that fit any number of rows
        (CombineCase(), CombineCase(k=33, same=True)),
    ),
}
TRAINED = {
    "moe_combine": sample,
    "moe_combine, one choice": lambda: sample(top_k=1, holes=0),
}
SHARDED = {
    "moe_combine": lambda: sample(CUT_M, CUT_K),
    "moe_combine, odd tokens": lambda: sample(3, CUT_K),
}
