"""Problems of quantize_per_token, quantize_per_tensor and quantize_fp8; the oracle is exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import mixed_gemm
from mixed_gemm.reference import scaled as reference_scaled

from . import verdict
from .covering import Rules
from .gemm import DEPTHS, DTYPES, ROWS
from .lattice import Sample, integers
from .placing import LEAD_RULES, OF_ACTIVATIONS, lead, place
from .rows import CUT_K, CUT_M, HALF, Call, K, Op
from .values import Values

FP8 = torch.float8_e4m3fn  # compared as float32: two NaN are equal there


@dataclass(frozen=True)
class QuantizeCase:
    """``how``: per token, symmetric or not, or per tensor, without or with a zero point; or to
    float8, per token or by as many elements."""

    m: int = 3
    k: int = 64
    dtype: torch.dtype = torch.float16
    how: str = "symmetric"
    lead: str = "2d"
    a_place: str = "alone"


FACTORS: dict[str, tuple[Any, ...]] = {
    "m": ROWS,
    "k": (*DEPTHS[1:], 2048, 2049, 4100, 8200),
    "dtype": DTYPES,
    "how": ("symmetric", "asymmetric", "tensor", "tensor_azp", "float8", "float8_7", "float8_128"),
    **OF_ACTIVATIONS,
}
RULES: Rules = LEAD_RULES


@dataclass
class QuantizeProblem:
    case: QuantizeCase
    a: Tensor
    scale: Tensor
    azp: Tensor | None

    @property
    def block_size(self) -> int | None:
        _, _, size = self.case.how.partition("_")
        return int(size) if size else None

    def run(self, config: str | None = None) -> tuple[Tensor | None, ...]:
        if self.case.how.startswith("float8"):
            return mixed_gemm.quantize_fp8(self.a, block_size=self.block_size)
        if self.case.how.startswith("tensor"):
            return (mixed_gemm.quantize_per_tensor(self.a, self.scale, self.azp),)
        symmetric = self.case.how == "symmetric"
        return mixed_gemm.quantize_per_token(self.a, symmetric=symmetric)

    def configs(self) -> list[str]:
        return []

    def verdict(self, out: tuple[Tensor | None, ...], config: str | None = None) -> Tensor:
        a = self.a.cpu()  # where torch's own division rounds once
        expected: tuple[Tensor | None, ...]
        if self.case.how.startswith("float8"):
            expected = reference_scaled.quantize_fp8(a, block_size=self.block_size)
        elif self.case.how.startswith("tensor"):
            azp = None if self.azp is None else self.azp.cpu()
            expected = (reference_scaled.quantize_per_tensor(a, self.scale.cpu(), azp),)
        else:
            symmetric = self.case.how == "symmetric"
            expected = reference_scaled.quantize_per_token(a, symmetric=symmetric)
        assert [x is None for x in out] == [x is None for x in expected]
        out, expected = (
            tuple(x.float() if x is not None and x.dtype == FP8 else x for x in given)
            for given in (out, expected)
        )
        pairs = [(x, y) for x, y in zip(out, expected, strict=True) if x is not None]
        return verdict.all_of(*(verdict.exact(x.cpu(), y) for x, y in pairs)).to(self.a.device)


def rows_of_ranges(values: Values, m: int, k: int) -> Tensor:
    """``[m, k]``: rows of ranges of their own, some of one sign, some of them many ranges away from
    0, where 16 bits hold few numbers or one."""
    a = values.normal(m, k) * (0.1 + 3 * values.uniform(m, 1))
    return a + 4 * values.normal(m, 1) * 2.0 ** (8 * values.uniform(m, 1))


def make(
    case: QuantizeCase, device: str = "cpu", seed: int = 0, drawn_on: str = "cpu"
) -> QuantizeProblem:
    values = Values(device, seed, drawn_on)
    a = rows_of_ranges(values, case.m, case.k).to(case.dtype)
    azp = None
    if case.how == "tensor_azp":
        azp = values.integers(-200, 200, 1, dtype=torch.int32)
    return QuantizeProblem(
        case, place(lead(a, case.lead), case.a_place), 0.01 + 0.1 * values.uniform(1), azp
    )


def cost(case: QuantizeCase) -> int:
    return max(case.m, 1) * case.k


def sample_per_token(shape: tuple[int, ...] = (3, 8), symmetric: bool = True) -> Sample:
    return Sample("quantize_per_token", {"a": integers(*shape), "symmetric": symmetric})


def sample_fp8(shape: tuple[int, ...] = (3, 8), block_size: int = 4) -> Sample:
    return Sample("quantize_fp8", {"a": integers(*shape), "block_size": block_size})


def sample_per_tensor(shape: tuple[int, ...] = (3, 8), one: tuple[int, ...] = ()) -> Sample:
    azp = torch.ones(one, dtype=torch.int32)
    given = {"a": integers(*shape), "scale": torch.ones(one), "azp": azp}
    return Sample("quantize_per_tensor", given)


OPS = {
    "quantize": Op(
        QuantizeCase, FACTORS, make, cost, RULES, {"m": 700, "k": 9000},
        typical=tuple(QuantizeCase(12, 328, HALF, how) for how in FACTORS["how"]),
    ),
}  # fmt: skip
CALLS = {
    "quantize_per_token": Call(
        sample_per_token,
        {"shape": (3, K), "symmetric": False},
        (QuantizeCase(how="asymmetric"),),
    ),
    "quantize_fp8": Call(
        sample_fp8,
        {"shape": (3, K), "block_size": 40},
        (QuantizeCase(how="float8_7"),),
    ),
    "quantize_per_tensor": Call(
        sample_per_tensor,
        {"shape": (3, K), "one": (1,)},
        (QuantizeCase(how="tensor"),),
    ),
}
SHARDED = {
    "quantize_per_token": lambda: sample_per_token((CUT_M, CUT_K)),
    "quantize_per_token, azp": lambda: sample_per_token((CUT_M, 2, CUT_K), symmetric=False),
    "quantize_fp8": lambda: sample_fp8((CUT_M, 2, CUT_K), 16),
    "quantize_per_tensor": lambda: sample_per_tensor((CUT_M, CUT_K)),
}
