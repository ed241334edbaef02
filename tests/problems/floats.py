"""Problems of fpA_fpB_gemm, of pack_codes with unpack_codes, and of dequantize_codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import mixed_gemm
from mixed_gemm import reference
from mixed_gemm.ops.problem import num_groups, round_up
from mixed_gemm.reference import floats as reference_floats
from mixed_gemm.selection.planning import device_string

from . import gemm, verdict
from .covering import Row, Rules
from .lattice import FLOAT, Sample, integers, powers
from .placing import LEAD_RULES, PLACES, lead, place, poison_output
from .rows import (
    CUT_GROUP,
    CUT_K,
    CUT_M,
    CUT_N,
    GEMM_SIZES,
    HALF,
    Call,
    K,
    N,
    Op,
    cost_of_packing,
)
from .values import Values

# What scales are: any of the dtype, which round with a code; powers of two (MXFP4) and numbers of
# float8_e4m3fn (NVFP4), which do not; with zeros and subnormal ones among them.
SCALES = ("any", "e8m0", "e4m3")
# The weight types with their values here; those of 8 bits are int8 codes, too.
WEIGHTS = ("e2m1", "e4m3", "nf4", "fp4")


@dataclass(frozen=True)
class FloatCase:
    """One problem. ``scales`` as in SCALES; ``*_place`` as in placing.PLACES."""

    m: int = 3
    n: int = 64
    k: int = 256
    dtype: torch.dtype = torch.float16
    weight: str = "e2m1"
    group_size: int = 32
    scales: str = "e8m0"
    factor: bool = True
    bias: bool = False
    pre_scale: bool = False
    activation: str = "identity"
    lead: str = "2d"
    a_place: str = "alone"
    b_place: str = "alone"
    scales_place: str = "alone"
    vectors_place: str = "alone"


FACTORS: dict[str, tuple[Any, ...]] = {
    **{name: gemm.FACTORS[name] for name in ("m", "n", "k", "dtype")},
    "weight": WEIGHTS,
    "group_size": gemm.GROUP_SIZES,
    "scales": SCALES,
    "factor": (True, False),
    **{
        name: gemm.FACTORS[name]
        for name in (
            "bias", "pre_scale", "activation", "lead", "a_place", "b_place", "scales_place",
            "vectors_place",
        )
    },
}  # fmt: skip
RULES: Rules = {("group_size", "k"): lambda group_size, k: group_size <= k, **LEAD_RULES}


def codes_of(case: Any, values: Values) -> Tensor:
    """int8 ``[N, K]``: every code but NaN."""
    if case.weight != "e4m3":
        return values.integers(0, 16, case.n, case.k, dtype=torch.int8)
    codes = values.integers(-128, 128, case.n, case.k, dtype=torch.int8)
    return torch.where((codes & 127) == 127, 0, codes)


def scales_of(case: Any, values: Values) -> Tensor:
    """``[G, N]`` in the dtype of the case, below 2 in magnitude."""
    groups = (num_groups(case.k, case.group_size), case.n)
    unit = (0.5 + values.uniform(*groups)).clamp(max=1.5)
    if case.scales == "any":
        return (unit * values.signs(*groups) / 8).to(case.dtype)
    powers = torch.ldexp(torch.ones_like(unit), -values.integers(0, 8, *groups))
    if case.scales == "e4m3":
        powers = (powers * unit).to(torch.float8_e4m3fn).float()
        powers[1::2, ::5] = 0
    powers[::2, ::7] = 2.0**-24  # subnormal in float16
    return powers.to(case.dtype)


def looked_up(codes: Tensor, weight: str) -> Tensor:
    """The same codes as indices of ``reference.VALUES``."""
    return codes.long() & (len(reference.VALUES[weight]) - 1)


@dataclass
class Problem(verdict.Remembered):
    """Tensors of a case: what the reference takes, and what the op takes."""

    case: FloatCase
    a: Tensor
    codes: Tensor
    scales: Tensor
    factor: Tensor | None
    bias: Tensor | None
    pre_scale: Tensor | None
    b_packed: Tensor

    def options(self) -> dict[str, Any]:
        case = self.case
        return {
            "weight": case.weight,
            "group_size": case.group_size,
            "activation": case.activation,
        }

    def extras(self) -> tuple[Tensor | None, ...]:
        return self.scales, self.factor, self.bias, self.pre_scale

    def run(self, a: Tensor | None = None, config: str | None = None, **changes: Any) -> Tensor:
        """The op's own choice, or a configuration by name, into memory that held NaN."""
        like = self.a if a is None else a
        poison_output((*like.shape[:-1], self.case.n), like)
        return self.call(a, config, **changes)

    def call(self, a: Tensor | None = None, config: str | None = None, **changes: Any) -> Tensor:
        """The same without a kernel of torch before it. ``changes``: other options."""
        op: Callable[..., Tensor] = mixed_gemm.fpA_fpB_gemm
        options = self.options()
        if config is not None:
            op = torch.ops.mixed_gemm.fpA_fpB_gemm_config
            options["config"] = config
        first = self.a if a is None else a
        return op(first, self.b_packed, *self.extras(), **{**options, **changes})

    def configs(self) -> list[str]:
        """All that the planner lists for this problem on this GPU."""
        case = self.case
        answer = json.loads(
            torch.ops.mixed_gemm._plan_codes(
                case.m,
                case.n,
                case.k,
                str(case.dtype).removeprefix("torch."),
                case.weight,
                case.group_size,
                device_string(self.a.device),
            )
        )
        assert answer["ok"], answer
        return [c["config"] for c in answer["candidates"]]

    def oracle(self, a: Tensor | None = None) -> reference.Oracle:
        a = self.a if a is None else a
        return reference_floats.oracle(a, self.codes, *self.extras(), **self.options())

    def verdict(self, out: Tensor, config: str | None = None) -> Tensor:
        """Error over the tighter of the bounds; see reference.floats.oracle."""
        assert out.dtype == self.case.dtype and out.is_contiguous()
        return verdict.worst(out, self.once("oracle", self.oracle))


def make(case: FloatCase, device: str = "cpu", seed: int = 0, drawn_on: str = "cpu") -> Problem:
    """Random tensors: the same values on every device if ``drawn_on`` is the same."""
    values = Values(device, seed, drawn_on)

    def put(x: Tensor | None, where: str) -> Any:
        return None if x is None else place(x.to(case.dtype), where)

    codes = codes_of(case, values)
    scales = scales_of(case, values)
    factor = 2 * values.normal(case.n) if case.factor else None
    if case.weight == "e4m3" and factor is not None:
        factor = factor / 64
    a = values.normal(case.m, case.k)
    bias = values.normal(case.n) if case.bias else None
    pre_scale = 0.5 + values.uniform(case.k) if case.pre_scale else None
    if case.dtype == torch.float16 and case.weight == "e4m3":
        a = a / 64  # sums of numbers up to 448 * 1024
    return Problem(
        case,
        place(lead(a.to(case.dtype), case.lead), case.a_place),
        codes,
        put(scales, case.scales_place),
        None if factor is None else place(factor.float(), case.vectors_place),
        put(bias, case.vectors_place),
        put(pre_scale, case.vectors_place),
        place(mixed_gemm.pack_codes(codes, case.weight), case.b_place),
    )


# --- pack_codes ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class PackCodesCase:
    n: int = 64
    k: int = 64
    weight: str = "e2m1"
    place: str = "alone"


PACK_FACTORS: dict[str, tuple[Any, ...]] = {
    "n": (0, *gemm.COLUMNS),
    "k": gemm.DEPTHS,
    "weight": WEIGHTS,
    "place": PLACES,
}


@dataclass
class PackProblem:
    """Packing, and unpacking all of it, padding included: the codes, and those of 0 around them."""

    case: PackCodesCase
    codes: Tensor

    def run(self, config: str | None = None) -> tuple[Tensor, ...]:
        case = self.case
        packed = mixed_gemm.pack_codes(self.codes, case.weight)
        whole = mixed_gemm.unpack_codes(
            packed, case.weight, round_up(case.n, 64), round_up(case.k, 64)
        )
        return whole, mixed_gemm.unpack_codes(packed, case.weight, case.n, case.k)

    def configs(self) -> list[str]:
        return []

    def verdict(self, out: tuple[Tensor, ...], config: str | None = None) -> Tensor:
        whole, real = out
        # The code of 0 around them.
        expected = torch.full_like(whole, 7 if self.case.weight == "nf4" else 0)
        expected[: self.case.n, : self.case.k] = self.codes
        return verdict.all_of(verdict.exact(whole, expected), verdict.exact(real, self.codes))


def make_pack(
    case: PackCodesCase, device: str = "cpu", seed: int = 0, drawn_on: str = "cpu"
) -> PackProblem:
    return PackProblem(case, place(codes_of(case, Values(device, seed, drawn_on)), case.place))


# --- dequantize_codes ---------------------------------------------------------------------------


@dataclass(frozen=True)
class DequantizeCodesCase:
    n: int = 64
    k: int = 256
    dtype: torch.dtype = torch.float16  # of the scales
    out_dtype: torch.dtype = torch.float16
    weight: str = "e2m1"
    group_size: int = 32
    scales: str = "e8m0"
    factor: bool = True
    b_place: str = "alone"
    scales_place: str = "alone"


DEQUANTIZE_FACTORS: dict[str, tuple[Any, ...]] = {
    **{name: FACTORS[name] for name in ("k", "dtype", "weight", "group_size", "scales", "factor")},
    "n": (0, *gemm.COLUMNS),
    "out_dtype": gemm.DTYPES,
    "b_place": gemm.FACTORS["b_place"],
    "scales_place": PLACES,
}
DEQUANTIZE_RULES: Rules = {("group_size", "k"): RULES[("group_size", "k")]}


@dataclass
class DequantizeProblem:
    case: DequantizeCodesCase
    codes: Tensor
    scales: Tensor
    factor: Tensor | None
    b_packed: Tensor

    def run(self, config: str | None = None) -> Tensor:
        case = self.case
        like = torch.empty(0, dtype=case.out_dtype, device=self.codes.device)
        poison_output((case.n, case.k), like)
        return mixed_gemm.dequantize_codes(
            self.b_packed,
            self.scales,
            self.factor,
            weight=case.weight,
            group_size=case.group_size,
            n=case.n,
            k=case.k,
            dtype=case.out_dtype,
        )

    def configs(self) -> list[str]:
        return []

    def verdict(self, out: Tensor, config: str | None = None) -> Tensor:
        """One rounding to the output, after at most two of fp32."""
        case = self.case
        assert out.dtype == case.out_dtype and out.is_contiguous()
        w = reference.dequantize(
            looked_up(self.codes, case.weight),
            self.scales,
            group_size=case.group_size,
            weight=case.weight,
            factor=self.factor,
        )
        u, eta = reference.ROUNDING[case.out_dtype]
        fp32 = 2 * 2.0**-24 * w.abs() + 2.0**-149
        return verdict.ratio(out, w, u * (w.abs() + fp32) + fp32 + eta)


def make_dequantize(
    case: DequantizeCodesCase, device: str = "cpu", seed: int = 0, drawn_on: str = "cpu"
) -> DequantizeProblem:
    values = Values(device, seed, drawn_on)
    codes, scales = codes_of(case, values), scales_of(case, values)
    return DequantizeProblem(
        case,
        codes,
        place(scales, case.scales_place),
        values.normal(case.n).float() if case.factor else None,
        place(mixed_gemm.pack_codes(codes, case.weight), case.b_place),
    )


def cost(case: Row | Any) -> int:
    return gemm.cost(case)


# --- rows -----------------------------------------------------------------------------------------


def _codes(n: int, k: int) -> Tensor:
    """Of e2m1: every number is a half of an integer."""
    return torch.randint(0, 16, (n, k)).to(torch.int8)


def sample(
    shape: tuple[int, ...] = (2, 40),
    dtype: torch.dtype = FLOAT,
    n: int = 5,
    group_size: int = 16,
    factor: bool = True,
    bias: bool = True,
    pre_scale: bool = True,
    activation: str = "identity",
) -> Sample:
    k = shape[-1]
    found = _codes(n, k)
    scales = powers(num_groups(k, group_size), n, dtype=dtype)
    times = integers(n, low=1, high=3) if factor else None
    before = powers(k, dtype=dtype) * 16 if pre_scale else None
    options: dict[str, Any] = {"weight": "e2m1", "group_size": group_size, "activation": activation}

    def exact(a: Tensor, bias: Tensor | None = None) -> Tensor:
        return reference_floats.fpA_fpB_gemm(a, found, scales, times, bias, before, **options)

    given = {
        "a": integers(*shape, low=-1, high=1, dtype=dtype),
        "b_packed": mixed_gemm.pack_codes(found, "e2m1"),
        "scales": scales,
        "factor": times,
        "bias": integers(n, dtype=dtype) if bias else None,
        "pre_scale": before,
        **options,
    }
    return Sample("fpA_fpB_gemm", given, ("a", "bias") if bias else ("a",), exact)


def sample_config(**sizes: Any) -> Sample:
    """In the configuration that runs on this CPU."""
    given = sample(**sizes).arguments
    (m, k), n = given["a"].shape, given["scales"].shape[1]
    options = {name: given[name] for name in ("weight", "group_size")}
    plan = mixed_gemm.plan(m, n, k, dtype=given["a"].dtype, device="cpu", **options)
    return Sample("fpA_fpB_gemm_config", {**given, "config": plan.selected})


def sample_dequantize(
    group_size: int = 16, dtype: torch.dtype = FLOAT, n: int = 5, k: int = 40
) -> Sample:
    given = {
        "b_packed": mixed_gemm.pack_codes(_codes(n, k), "e2m1"),
        "scales": powers(num_groups(k, group_size), n, dtype=dtype),
        "factor": integers(n, low=1, high=3),
        "weight": "e2m1",
        "group_size": group_size,
        "n": n,
        "k": k,
        "dtype": dtype,
    }
    return Sample("dequantize_codes", given)


def sample_pack(n: int = 5, k: int = 40) -> Sample:
    return Sample("pack_codes", {"codes": _codes(n, k), "weight": "e2m1"})


def sample_unpack(n: int = 5, k: int = 40) -> Sample:
    packed = mixed_gemm.pack_codes(_codes(n, k), "e2m1")
    return Sample("unpack_codes", {"b_packed": packed, "weight": "e2m1", "n": n, "k": k})


OPS = {
    "fpA_fpB_gemm": Op(
        FloatCase,
        FACTORS,
        make,
        cost,
        RULES,
        GEMM_SIZES,
        typical=(
            FloatCase(24, 200, 320, HALF, bias=True, pre_scale=True),
            FloatCase(48, 512, 1024, torch.bfloat16, group_size=16, scales="e4m3"),
            FloatCase(1, 65, 777, HALF, activation="gelu"),
        ),
        forced=True,
    ),
    "pack_codes": Op(
        PackCodesCase,
        PACK_FACTORS,
        make_pack,
        cost_of_packing,
        {},
        {"n": 1500, "k": 4200},
        typical=(PackCodesCase(70, 100), PackCodesCase(65, 129, "e4m3")),
    ),
    "dequantize_codes": Op(
        DequantizeCodesCase,
        DEQUANTIZE_FACTORS,
        make_dequantize,
        cost_of_packing,
        DEQUANTIZE_RULES,
        {"n": 1500, "k": 4200},
        typical=(DequantizeCodesCase(130, 320),),
    ),
}
_SMALL = {"shape": (3, K), "n": N, "dtype": HALF, "group_size": 32, "activation": "silu"}
CALLS = {
    "fpA_fpB_gemm": Call(
        sample,
        _SMALL,
        (
            FloatCase(5, 72, 96, torch.float32, bias=True, pre_scale=True, activation="silu"),
            FloatCase(5, 72, 96, torch.bfloat16, group_size=16, scales="e4m3"),
        ),
    ),
    "fpA_fpB_gemm_config": Call(sample_config, _SMALL),
    "pack_codes": Call(sample_pack, {"n": N, "k": K}, (PackCodesCase(n=70, k=100),)),
    "unpack_codes": Call(sample_unpack, {"n": N, "k": K}),
    "dequantize_codes": Call(
        sample_dequantize,
        {"n": N, "k": K, "group_size": 32, "dtype": HALF},
        (DequantizeCodesCase(n=70, k=96),),
    ),
}
TRAINED = {
    "float gemm": sample,
    "float gemm no factor": lambda: sample(factor=False, pre_scale=False, group_size=32),
    "float gemm no bias": lambda: sample(bias=False),
    "float gemm 1-D": lambda: sample((40,)),
    "float gemm silu": lambda: sample(activation="silu"),
}
SHARDED = {
    "float gemm": lambda: sample((CUT_M, CUT_K), n=CUT_N, group_size=CUT_GROUP),
    "pack_codes": lambda: sample_pack(CUT_N, CUT_K),
    "unpack_codes": lambda: sample_unpack(CUT_N, CUT_K),
    "dequantize_codes": lambda: sample_dequantize(group_size=CUT_GROUP, n=CUT_N, k=CUT_K),
}
