"""Problems of gated_activation."""

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
from .placing import LEAD_RULES, OF_ACTIVATIONS, lead, place, poison_output
from .rows import CUT_K, CUT_M, HALF, Call, K, Op
from .values import Values

ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "relu", "swiglu_oai")


@dataclass(frozen=True)
class GatedCase:
    """``k``: half of a row."""

    m: int = 5
    k: int = 40
    dtype: torch.dtype = torch.float16
    activation: str = "silu"
    limit: float | None = None
    lead: str = "2d"
    a_place: str = "alone"

    def options(self) -> dict[str, Any]:
        alpha = 1.702 if self.activation == "swiglu_oai" else 1.0
        return {"activation": self.activation, "limit": self.limit, "alpha": alpha}


FACTORS: dict[str, tuple[Any, ...]] = {
    "m": ROWS,
    "k": DEPTHS,
    "dtype": DTYPES,
    "activation": ACTIVATIONS,
    "limit": (None, 0.5, 7.0),
    **OF_ACTIVATIONS,
}
RULES: Rules = LEAD_RULES


@dataclass
class GatedProblem:
    case: GatedCase
    a: Tensor

    def run(self, config: str | None = None) -> Tensor:
        poison_output((*self.a.shape[:-1], self.case.k), self.a)
        return mixed_gemm.gated_activation(self.a, **self.case.options())

    def configs(self) -> list[str]:
        return []

    def verdict(self, out: Tensor, config: str | None = None) -> Tensor:
        assert out.dtype == self.case.dtype and out.is_contiguous()
        given, options = self.a.cpu(), self.case.options()  # torch's functions on a GPU are others
        expected = reference_moe.gated_activation(given, **options)
        bound = reference_moe.gated_error_bound(given, **options)
        return verdict.ratio(out.cpu(), expected, bound).to(out.device)


def make(
    case: GatedCase, device: str = "cpu", seed: int = 0, drawn_on: str = "cpu"
) -> GatedProblem:
    values = Values(device, seed, drawn_on)
    # Of all sizes, up to those that an exponential of fp32 does not hold.
    a = values.normal(case.m, 2 * case.k) * 2.0 ** (values.uniform(case.m, 1) * 10 - 4)
    return GatedProblem(case, place(lead(a.to(case.dtype), case.lead), case.a_place))


def cost(case: GatedCase) -> int:
    return 32 * max(case.m, 1) * max(case.k, 1)


def sample(
    shape: tuple[int, ...] = (3, 8), activation: str = "relu", limit: float | None = None
) -> Sample:
    options = {
        "activation": activation,
        "limit": limit,
        "alpha": 2.0 if activation == "swiglu_oai" else 1.0,
    }

    def exact(gate_up: Tensor) -> Tensor:
        return reference_moe.gated_activation(gate_up, **options)

    given = {"gate_up": integers(*shape), **options}
    return Sample("gated_activation", given, ("gate_up",), exact)


OPS = {
    "gated_activation": Op(
        GatedCase, FACTORS, make, cost, RULES, {"m": 700, "k": 3000},
        typical=(
            *(GatedCase(12, 328, HALF, activation) for activation in ACTIVATIONS),
            GatedCase(12, 77, torch.float32, "swiglu_oai", 7.0),
            GatedCase(70, 512, torch.bfloat16, "silu", 0.5),
        ),
    ),
}  # fmt: skip
CALLS = {
    "gated_activation": Call(
        sample,
        {"shape": (3, K), "activation": "swiglu_oai", "limit": 7.0},
        (GatedCase(), GatedCase(k=33, activation="swiglu_oai", limit=7.0)),
    ),
}
TRAINED = {
    "gated_activation relu": sample,
    "gated_activation 1-D": lambda: sample((8,)),
    "gated_activation relu, limit": lambda: sample(limit=1.5),
    "gated_activation silu": lambda: sample(activation="silu"),
    "gated_activation gelu": lambda: sample(activation="gelu"),
    "gated_activation gelu_tanh": lambda: sample(activation="gelu_tanh", limit=1.5),
    "gated_activation swiglu_oai": lambda: sample(activation="swiglu_oai", limit=1.5),
}
SHARDED = {
    "gated_activation": lambda: sample((CUT_M, 2, CUT_K)),
    "gated_activation, one row": lambda: sample((1, CUT_K)),
}
