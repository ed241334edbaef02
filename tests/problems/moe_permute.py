"""Problems of moe_permute; the oracle is exact."""

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
from .lattice import Sample, integers
from .placing import PLACES, place, place_unchanged, poison_output
from .rows import HALF, Call, K, Op
from .values import Values

# Whom tokens choose: any expert or none, the last one alone, none, every one its own.
ROUTINGS = ("any", "last", "none", "even")


@dataclass(frozen=True)
class PermuteCase:
    m: int = 5
    k: int = 40
    dtype: torch.dtype = torch.float16
    top_k: int = 2
    experts: int = 8
    ids: torch.dtype = torch.int64
    routing: str = "any"
    a_place: str = "alone"
    ids_place: str = "alone"


FACTORS: dict[str, tuple[Any, ...]] = {
    "m": (*ROWS, 700),
    "k": DEPTHS,
    "dtype": DTYPES,
    "top_k": (0, 1, 2, 4, 8, 10),
    "experts": (1, 2, 8, 60, 128, 257, 512, 1024, 5000),
    "ids": (torch.int32, torch.int64),
    "routing": ROUTINGS,
    "a_place": PLACES,
    "ids_place": PLACES,
}
RULES: Rules = {}


@dataclass
class PermuteProblem:
    case: PermuteCase
    a: Tensor
    topk_ids: Tensor

    def run(self, config: str | None = None) -> tuple[Tensor, ...]:
        poison_output((self.case.m * self.case.top_k, self.case.k), self.a)
        return mixed_gemm.moe_permute(self.a, self.topk_ids, self.case.experts)

    def configs(self) -> list[str]:
        return []

    def verdict(self, out: tuple[Tensor, ...], config: str | None = None) -> Tensor:
        expected = reference_moe.moe_permute(self.a, self.topk_ids, self.case.experts)
        return verdict.all_of(*map(verdict.exact, out, expected))


def routed(values: Values, case: PermuteCase) -> Tensor:
    shape = (case.m, case.top_k)
    if case.routing == "even":
        return torch.arange(case.m * case.top_k, device=values.device).view(shape) % case.experts
    low, high = {"any": (-1, case.experts + 1), "none": (-1, 0)}.get(
        case.routing, (case.experts - 1, case.experts)
    )
    return values.integers(low, high, *shape)


def make(
    case: PermuteCase, device: str = "cpu", seed: int = 0, drawn_on: str = "cpu"
) -> PermuteProblem:
    values = Values(device, seed, drawn_on)
    a = values.normal(case.m, case.k).to(case.dtype)
    ids = routed(values, case).to(case.ids)
    return PermuteProblem(case, place(a, case.a_place), place_unchanged(ids, case.ids_place))


def cost(case: PermuteCase) -> int:
    return max(case.m, 1) * max(case.top_k, 1) * max(case.k, 1) + case.experts


class OfRows(Sample):
    """The rows alone, which have a derivative."""

    def run(self, *trained: Tensor) -> Tensor:
        rows: Tensor = super().run(*trained)[0]
        return rows


def sample(tokens: int = 3, k: int = 8, top_k: int = 2, experts: int = 4) -> Sample:
    ids = torch.randint(-1, experts + 1, (tokens, top_k))
    ids[0, 0] = 0
    given = {"hidden_states": integers(tokens, k), "topk_ids": ids, "num_experts": experts}
    _, _, positions = reference_moe.moe_permute(given["hidden_states"], ids, experts)
    at = torch.where(positions >= 0, positions, tokens * top_k).flatten().long()

    def exact(hidden_states: Tensor) -> Tensor:
        terms = hidden_states.repeat_interleave(top_k, 0)
        rows = terms.new_zeros(tokens * top_k + 1, k).index_add(0, at, terms)
        return rows[: tokens * top_k]

    return OfRows("moe_permute", given, ("hidden_states",), exact)


OPS = {
    "moe_permute": Op(
        PermuteCase, FACTORS, make, cost, RULES, {"m": 3000, "k": 600, "experts": 2000},
        typical=(
            PermuteCase(12, 328, HALF, 4, 60),
            PermuteCase(12, 77, torch.float32, 2, 8, torch.int32),
            PermuteCase(700, 64, torch.bfloat16, 8, 128, routing="even"),
            PermuteCase(40, 64, HALF, 8, 1024),
        ),
    ),
}  # fmt: skip
CALLS = {
    "moe_permute": Call(sample, {"tokens": 3, "k": K}, (PermuteCase(), PermuteCase(k=33, top_k=1))),
}
TRAINED = {
    "moe_permute": sample,
    "moe_permute, one expert": lambda: sample(experts=1, top_k=1),
}
