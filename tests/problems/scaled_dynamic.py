"""Problems of scaled_mm_dynamic: bit for bit the two calls that it stands for, and within the bound
of scaled_mm around the rows that the reference rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import mixed_gemm
from mixed_gemm.reference import scaled as reference_scaled

from . import verdict
from .covering import Rules
from .gemm import COLUMNS, DTYPES, ROWS
from .lattice import FLOAT, Sample, full_range, int8, integers, powers
from .placing import LEAD_RULES, OF_ACTIVATIONS, PLACES_OF_ROWS, lead, place, poison_output
from .quantize import rows_of_ranges
from .rows import CUT_K, CUT_M, CUT_N, GEMM_SIZES, Call, Op
from .scaled import DEPTHS, SMALL
from .values import Values

# One row holds this beside numbers, so that the whole row is 0 or NaN.
SPOILED = ("none", "zero", "nan", "inf", "-inf")


@dataclass(frozen=True)
class ScaledDynamicCase:
    """One problem. ``column_scales``: one for each column, else one for all."""

    m: int = 5
    n: int = 40
    k: int = 96
    dtype: torch.dtype = torch.float16
    azp: bool = False
    bias: bool = False
    column_scales: bool = True
    spoiled: str = "none"
    lead: str = "2d"
    a_place: str = "alone"
    b_place: str = "alone"
    vectors_place: str = "alone"

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        extras = "".join(f"-{name}" for name in ("azp", "bias") if getattr(self, name))
        return f"m{self.m}n{self.n}k{self.k}-{dtype}{extras}-{self.spoiled}"


FACTORS: dict[str, tuple[Any, ...]] = {
    "m": ROWS,
    "n": (0, *COLUMNS),
    "k": DEPTHS,
    "dtype": DTYPES,
    "azp": (False, True),
    "bias": (False, True),
    "column_scales": (False, True),
    "spoiled": SPOILED,
    **OF_ACTIVATIONS,
    "b_place": PLACES_OF_ROWS,
    "vectors_place": ("alone", "guarded", "odd_offset", "every_second_row", "expanded"),
}
RULES: Rules = LEAD_RULES


@dataclass
class ScaledDynamicProblem(verdict.Remembered):
    case: ScaledDynamicCase
    a: Tensor
    weight: Tensor  # [N, K]
    scale_b: Tensor
    bias: Tensor | None
    azp_adj: Tensor | None

    def run(self, a: Tensor | None = None, config: str | None = None) -> Tensor:
        """Into memory that held NaN."""
        a = self.a if a is None else a
        poison_output((*a.shape[:-1], self.weight.shape[0]), a)
        return mixed_gemm.scaled_mm_dynamic(
            a, self.weight.t(), self.scale_b, self.azp_adj, self.bias
        )

    def two_calls(self) -> Tensor:
        q, scale, azp = mixed_gemm.quantize_per_token(self.a, symmetric=not self.case.azp)
        given = (q, self.weight.t(), scale, self.scale_b)
        if self.azp_adj is None:
            return mixed_gemm.scaled_mm(*given, self.bias, out_dtype=self.case.dtype)
        return mixed_gemm.scaled_mm_azp(
            *given, self.azp_adj, azp, self.bias, out_dtype=self.case.dtype
        )

    def configs(self) -> list[str]:
        return []

    def whole_rows(self) -> Tensor:
        """Which rows have neither NaN nor infinity, ``[M]``; the others become NaN."""
        return self.a.reshape(self.case.m, self.case.k).isfinite().all(-1)

    def oracle(self) -> tuple[Tensor, Tensor]:
        """(exact, bound) of the whole rows, around the codes of the reference."""
        rows = self.a.reshape(self.case.m, self.case.k)[self.whole_rows()].cpu()
        codes = reference_scaled.quantize_per_token(rows, symmetric=not self.case.azp)
        q, scale, azp = (None if x is None else x.to(self.a.device) for x in codes)
        assert q is not None and scale is not None
        given = (q, self.weight.t(), scale, self.scale_b, self.bias)
        points: dict[str, Any] = {"azp_adj": self.azp_adj, "azp": azp}
        expected = reference_scaled.scaled_mm(*given, **points)
        return expected, reference_scaled.error_bound(*given, out_dtype=self.case.dtype, **points)

    def verdict(self, out: Tensor, config: str | None = None) -> Tensor:
        assert out.dtype == self.case.dtype and out.is_contiguous()
        same = verdict.exact(out, self.once("two", self.two_calls))
        whole, rows = self.once("whole", self.whole_rows), out.reshape(self.case.m, self.case.n)
        spoiled = verdict.exact(rows[~whole].isnan(), torch.ones_like(rows[~whole]).bool())
        ratio = verdict.ratio(rows[whole], *self.once("oracle", self.oracle))
        return verdict.all_of(same, spoiled, ratio)


def make(
    case: ScaledDynamicCase, device: str = "cpu", seed: int = 0, drawn_on: str = "cpu"
) -> ScaledDynamicProblem:
    """Random tensors: the same values on every device if ``drawn_on`` is the same."""
    values = Values(device, seed, drawn_on)
    m, n, k = case.m, case.n, case.k
    a = rows_of_ranges(values, m, k).to(case.dtype)
    if case.spoiled == "zero":
        a[m // 2 : m // 2 + 1] = 0
    elif case.spoiled != "none" and a.numel():
        a[m // 2, k // 3] = float(case.spoiled)
    weight = place(values.integers(-128, 128, n, k, dtype=torch.int8), case.b_place)
    count = n if case.column_scales else 1
    scale = (0.5 + values.uniform(count)) * values.signs(count) / 64 / max(k, 1) ** 0.5
    bias = values.normal(n).to(case.dtype) if case.bias else None
    azp_adj = mixed_gemm.ops.azp_adjustment(weight) if case.azp else None

    def put(x: Tensor | None) -> Any:
        return None if x is None else place(x, case.vectors_place)

    return ScaledDynamicProblem(
        case,
        place(lead(a, case.lead), case.a_place),
        weight,
        put(scale),
        put(bias),
        put(azp_adj),
    )


def cost(case: ScaledDynamicCase) -> int:
    return max(case.m, 1) * max(case.n, 1) * max(case.k, 1)


def sample(
    shape: tuple[int, ...] = (3, 16),
    n: int = 4,
    azp: bool = True,
    dtype: torch.dtype = FLOAT,
    scale_b: tuple[int, ...] | None = None,
) -> Sample:
    """Activations that are integers already, in rows whose scale is 1."""
    a = full_range(*shape, block=shape[-1], low=-128 if azp else -127).to(dtype)
    b = int8(n, shape[-1], most=2).t()
    given = {
        "a": a,
        "azp_adj": b.sum(0, dtype=torch.int32) if azp else None,
        "b": b,
        "scale_b": powers(*((n,) if scale_b is None else scale_b)),
        "bias": integers(n, dtype=dtype),
    }
    y = (a.double() @ b.double()) * given["scale_b"].double()
    return Sample("scaled_mm_dynamic", given, ("bias",), lambda bias: y + bias)


OPS = {
    "scaled_mm_dynamic": Op(
        ScaledDynamicCase, FACTORS, make, cost, RULES, GEMM_SIZES,
        typical=(
            ScaledDynamicCase(24, 200, 320, azp=True, bias=True),
            ScaledDynamicCase(1, 512, 1024, torch.bfloat16),
            ScaledDynamicCase(300, 512, 512, torch.bfloat16, azp=True),
        ),
    ),
}  # fmt: skip
CALLS = {
    "scaled_mm_dynamic": Call(sample, SMALL, (ScaledDynamicCase(azp=True, bias=True),)),
}
TRAINED = {
    "scaled_mm_dynamic": lambda: sample(azp=False),
    "scaled_mm_dynamic azp": sample,
}


def _sharded(*rows: int, azp: bool) -> Sample:
    return sample((*rows, CUT_K), CUT_N, azp=azp)


SHARDED = {
    "scaled_mm_dynamic": lambda: _sharded(CUT_M, azp=False),
    "scaled_mm_dynamic, azp, 3-D": lambda: _sharded(CUT_M, 2, azp=True),
    "scaled_mm_dynamic, no bias": lambda: _sharded(5, azp=True).without("bias"),
}
