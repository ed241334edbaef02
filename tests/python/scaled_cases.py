"""The one generator of problems for scaled_mm; the twin of cases.py."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

import mixed_gemm
from mixed_gemm import reference, reference_scaled

OUT_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
AZP = ("none", "folded", "per_row")


@dataclass(frozen=True)
class ScaledCase:
    """One problem. ``row_scales`` and ``column_scales``: one for each, else one for all."""

    m: int = 5
    n: int = 40
    k: int = 96
    out_dtype: torch.dtype = torch.float16
    operand: torch.dtype = torch.int8
    row_scales: bool = True
    column_scales: bool = True
    azp: str = "none"
    bias: bool = False

    def __str__(self) -> str:
        names = [str(x).removeprefix("torch.") for x in (self.operand, self.out_dtype)]
        scales = "".join("tc"[x] for x in (self.row_scales, self.column_scales))
        bias = "-bias" if self.bias else ""
        return f"m{self.m}n{self.n}k{self.k}-{'-'.join(names)}-{scales}-{self.azp}{bias}"


@dataclass
class ScaledProblem:
    case: ScaledCase
    a: Tensor
    weight: Tensor  # [N, K]
    scale_a: Tensor
    scale_b: Tensor
    bias: Tensor | None
    azp_adj: Tensor | None
    azp: Tensor | None

    @property
    def b(self) -> Tensor:
        return self.weight.t()

    def run(self, a: Tensor | None = None, **changes: Any) -> Tensor:
        """Through the Python layer, which sends float8 to torch on Hopper."""
        arguments: dict[str, Any] = {
            "a": self.a if a is None else a,
            "b": self.b,
            "scale_a": self.scale_a,
            "scale_b": self.scale_b,
            "bias": self.bias,
            "out_dtype": self.case.out_dtype,
        }
        op: Callable[..., Tensor] = mixed_gemm.scaled_mm
        if self.azp_adj is not None:
            arguments.update(azp_adj=self.azp_adj, azp=self.azp)
            op = mixed_gemm.scaled_mm_azp
        return op(**{**arguments, **changes})

    def oracle(self, sum_epsilon: float = 2.0**-23) -> tuple[Tensor, Tensor]:
        """(exact, bound); see reference_scaled.error_bound."""
        operands = (self.a, self.b, self.scale_a, self.scale_b, self.bias)
        points = {"azp_adj": self.azp_adj, "azp": self.azp}
        expected = reference_scaled.scaled_mm(*operands, **points)
        bound = reference_scaled.error_bound(
            *operands, out_dtype=self.case.out_dtype, sum_epsilon=sum_epsilon, **points
        )
        return expected, bound

    def ratio(self, out: Tensor, sum_epsilon: float = 2.0**-23) -> float:
        """max |out - exact| / bound."""
        assert out.dtype == self.case.out_dtype
        return reference.error_ratio(out, *self.oracle(sum_epsilon))


def make(case: ScaledCase, device: str = "cpu", seed: int = 0) -> ScaledProblem:
    """Random tensors: the same values on every device."""
    g = torch.Generator().manual_seed(seed)
    m, n, k = case.m, case.n, case.k

    def operand(rows: int) -> Tensor:
        if case.operand == torch.int8:
            return torch.randint(-128, 128, (rows, k), generator=g, dtype=torch.int8)
        return (torch.randn(rows, k, generator=g) * 4).to(case.operand)

    def scale(count: int) -> Tensor:
        sign = torch.randint(0, 2, (count,), generator=g) * 2 - 1  # negative scales are legal
        return (0.5 + torch.rand(count, generator=g)) * sign / 64 / max(k, 1) ** 0.5

    a, weight = operand(m), operand(n)
    scale_a = scale(m)[:, None] if case.row_scales else scale(1)
    scale_b = scale(n) if case.column_scales else scale(1)
    bias = torch.randn(n, generator=g).to(case.out_dtype) if case.bias else None
    azp_adj = azp = None
    if case.azp == "folded":
        azp_adj = mixed_gemm.azp_adjustment(weight, int(torch.randint(-128, 128, (), generator=g)))
    elif case.azp == "per_row":
        azp_adj = mixed_gemm.azp_adjustment(weight)
        azp = torch.randint(-128, 128, (m, 1), generator=g, dtype=torch.int32)

    def place(x: Tensor | None) -> Any:
        return None if x is None else x.to(device)

    return ScaledProblem(
        case, *(place(x) for x in (a, weight, scale_a, scale_b, bias, azp_adj, azp))
    )


def epilogue_cases(base: ScaledCase) -> Iterator[ScaledCase]:
    """Every output type x scale form x zero point x bias."""
    flags = (False, True)
    for out, rows, columns, azp, bias in itertools.product(OUT_DTYPES, flags, flags, AZP, flags):
        if azp != "none" and base.operand != torch.int8:
            continue
        yield replace(
            base, out_dtype=out, row_scales=rows, column_scales=columns, azp=azp, bias=bias
        )


def shapes() -> Iterator[tuple[int, int, int]]:
    """Ragged sizes around vectors, rows of a call, tiles and steps of K, then together."""
    yield from ((m, 40, 96) for m in (0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 129))
    yield from ((5, n, 96) for n in (1, 2, 3, 5, 7, 8, 9, 15, 17, 31, 33, 47, 49, 63, 65, 129, 257))
    yield from ((5, 40, k) for k in (0, 1, 2, 3, 4, 5, 15, 17, 31, 33, 63, 65, 127, 129, 257, 2049))
    yield from ((1, 1, 1), (17, 33, 47), (65, 127, 129), (130, 257, 1000), (257, 66, 4100))
