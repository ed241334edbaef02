"""Problems of pack_weights with unpack_weights, of pack_conv_weights, and of dequantize_weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import mixed_gemm
from mixed_gemm import reference
from mixed_gemm.ops.conv_problem import channels_per_tap
from mixed_gemm.ops.problem import integer_weight, num_groups, packed_shape

from . import gemm, verdict
from .covering import Row, Rules
from .lattice import FLOAT, Sample, int8, integers, powers
from .placing import PLACES, place, poison_output
from .rows import CUT_GROUP, CUT_K, CUT_N, HALF, Call, K, N, Op, cost_of_packing
from .values import Values


@dataclass(frozen=True)
class PackCase:
    n: int = 64
    k: int = 64
    bits: int = 4
    place: str = "alone"


PACK_FACTORS: dict[str, tuple[Any, ...]] = {
    "n": (0, *gemm.COLUMNS),
    "k": gemm.DEPTHS,
    "bits": (4, 8),
    "place": PLACES,
}


@dataclass
class PackProblem:
    """Packing, and unpacking all of it, padding included: the integers, and zeros around them."""

    case: PackCase
    q: Tensor

    def run(self, config: str | None = None) -> tuple[Tensor, ...]:
        case = self.case
        n_pad, row_bytes = packed_shape(case.n, case.k, integer_weight(case.bits))
        k_pad = row_bytes * 8 // case.bits
        packed = mixed_gemm.pack_weights(self.q, case.bits)
        whole = mixed_gemm.unpack_weights(packed, case.bits, n_pad, k_pad)
        return whole, mixed_gemm.unpack_weights(packed, case.bits, case.n, case.k)

    def configs(self) -> list[str]:
        return []

    def verdict(self, out: tuple[Tensor, ...], config: str | None = None) -> Tensor:
        whole, real = out
        expected = torch.zeros_like(whole)
        expected[: self.case.n, : self.case.k] = self.q
        return verdict.all_of(verdict.exact(whole, expected), verdict.exact(real, self.q))


def make_pack(
    case: PackCase, device: str = "cpu", seed: int = 0, drawn_on: str = "cpu"
) -> PackProblem:
    values = Values(device, seed, drawn_on)
    high = 2 ** (case.bits - 1)
    q = values.integers(-high, high, case.n, case.k, dtype=torch.int8)
    return PackProblem(case, place(q, case.place))


# --- filters ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PackConvCase:
    out_c: int = 8
    in_c: int = 8
    kernel: tuple[int, int] = (3, 3)
    bits: int = 4
    place: str = "alone"


PACK_CONV_FACTORS: dict[str, tuple[Any, ...]] = {
    "out_c": (1, 2, 7, 8, 17, 63, 64, 65, 129),
    "in_c": (1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 129),
    "kernel": ((1, 1), (1, 2), (3, 3), (2, 5), (7, 1), (7, 7)),
    "bits": (4, 8),
    "place": ("alone", "guarded", "odd_offset", "in_odd_rows", "transposed", "channels_last"),
}


@dataclass
class PackConvProblem:
    """K is taps by channels, the channels of a tap padded with zeros."""

    case: PackConvCase
    q: Tensor

    def run(self, config: str | None = None) -> Tensor:
        case = self.case
        k = case.kernel[0] * case.kernel[1] * channels_per_tap(case.in_c)
        packed = mixed_gemm.pack_conv_weights(self.q, case.bits)
        return mixed_gemm.unpack_weights(packed, case.bits, case.out_c, k)

    def configs(self) -> list[str]:
        return []

    def verdict(self, out: Tensor, config: str | None = None) -> Tensor:
        channels = channels_per_tap(self.case.in_c)
        by_tap = self.q.flatten(2).transpose(1, 2)
        padded = torch.nn.functional.pad(by_tap, (0, channels - self.case.in_c))
        return verdict.exact(out, padded.flatten(1))


def make_pack_conv(
    case: PackConvCase, device: str = "cpu", seed: int = 0, drawn_on: str = "cpu"
) -> PackConvProblem:
    values = Values(device, seed, drawn_on)
    high = 2 ** (case.bits - 1)
    q = values.integers(-high, high, case.out_c, case.in_c, *case.kernel, dtype=torch.int8)
    if case.place == "channels_last":
        return PackConvProblem(case, q.contiguous(memory_format=torch.channels_last))
    return PackConvProblem(case, place(q, case.place))


# --- dequantize_weights -------------------------------------------------------------------------


@dataclass(frozen=True)
class DequantizeCase:
    n: int = 64
    k: int = 256
    dtype: torch.dtype = torch.float16  # of the scales
    out_dtype: torch.dtype = torch.float16
    bits: int = 4
    group_size: int = -1
    zero_mode: str = "none"
    b_place: str = "alone"
    scales_place: str = "alone"
    zeros_place: str = "alone"


DEQUANTIZE_FACTORS: dict[str, tuple[Any, ...]] = {
    **{name: gemm.FACTORS[name] for name in ("k", "dtype", "bits", "scheme")},
    "n": (0, *gemm.COLUMNS),
    "out_dtype": gemm.DTYPES,
    "b_place": gemm.FACTORS["b_place"],
    "scales_place": PLACES,
    "zeros_place": PLACES,
}
DEQUANTIZE_RULES: Rules = {
    name: gemm.RULES[name] for name in (("k", "scheme"), ("scheme", "zeros_place"))
}


def dequantize_from_row(row: Row) -> DequantizeCase:
    return DequantizeCase(**gemm.fields_of(row))


@dataclass
class DequantizeProblem:
    case: DequantizeCase
    q: Tensor
    scales: Tensor
    zeros: Tensor | None
    b_packed: Tensor

    def run(self, config: str | None = None) -> Tensor:
        case = self.case
        poison_output((case.n, case.k), torch.empty(0, dtype=case.out_dtype, device=self.q.device))
        return mixed_gemm.dequantize_weights(
            self.b_packed,
            self.scales,
            self.zeros,
            bits=case.bits,
            group_size=case.group_size,
            zero_mode="add" if case.zero_mode == "add" else "sub",
            n=case.n,
            k=case.k,
            dtype=case.out_dtype,
        )

    def configs(self) -> list[str]:
        return []

    def verdict(self, out: Tensor, config: str | None = None) -> Tensor:
        """One rounding to the output, after at most three of fp32."""
        case = self.case
        assert out.dtype == case.out_dtype and out.is_contiguous()
        mode = "add" if case.zero_mode == "add" else "sub"
        scheme = {"group_size": case.group_size, "zero_mode": mode}
        w = reference.dequantize(self.q, self.scales, self.zeros, **scheme)
        product = reference.dequantize(self.q, self.scales, group_size=case.group_size)
        u, eta = reference.ROUNDING[case.out_dtype]
        fp32 = 3 * 2.0**-24 * (product.abs() + (w - product).abs()) + 2.0**-149
        return verdict.ratio(out, w, u * (w.abs() + fp32) + fp32 + eta)


def make_dequantize(
    case: DequantizeCase, device: str = "cpu", seed: int = 0, drawn_on: str = "cpu"
) -> DequantizeProblem:
    values = Values(device, seed, drawn_on)
    high = 2 ** (case.bits - 1)
    groups = (num_groups(case.k, case.group_size), case.n)
    q = values.integers(-high, high, case.n, case.k, dtype=torch.int8)
    scales = (0.5 + values.uniform(*groups)) * values.signs(*groups) * 0.5 / high
    zeros = gemm.zero_points(case.zero_mode, case.bits, groups, values)
    if case.zero_mode == "sub_large":
        scales = scales * 2**-6
    return DequantizeProblem(
        case,
        q,
        place(scales.to(case.dtype), case.scales_place),
        None if zeros is None else place(zeros.to(case.dtype), case.zeros_place),
        place(mixed_gemm.pack_weights(q, case.bits), case.b_place),
    )


def sample_dequantize(
    zero_mode: str = "sub",
    zeros: bool = True,
    group_size: int = 16,
    dtype: torch.dtype = FLOAT,
    n: int = 5,
    k: int = 40,
) -> Sample:
    groups = (num_groups(k, group_size), n)
    q = int8(n, k)
    z = None
    if zeros:
        z = integers(*groups, dtype=dtype) / (1 if zero_mode == "sub" else 8)
    options: dict[str, Any] = {"group_size": group_size, "zero_mode": zero_mode}

    def exact(scales: Tensor) -> Tensor:
        return reference.dequantize(q, scales, z, **options)

    given = {
        "b_packed": mixed_gemm.pack_weights(q, 4),
        "scales": powers(*groups, dtype=dtype),
        "zeros": z,
        "bits": 4,
        **options,
        "n": n,
        "k": k,
        "dtype": dtype,
    }
    return Sample("dequantize_weights", given, ("scales",), exact)


def sample_pack(n: int = 5, k: int = 40) -> Sample:
    return Sample("pack_weights", {"q": int8(n, k), "bits": 4, "check": False})


def sample_unpack(n: int = 5, k: int = 40) -> Sample:
    packed = mixed_gemm.pack_weights(int8(n, k), 4)
    return Sample("unpack_weights", {"b_packed": packed, "bits": 4, "n": n, "k": k})


def sample_pack_conv(channels: int = 4, out_c: int = 3) -> Sample:
    given = {"q": int8(out_c, channels, 3, 3), "bits": 4, "check": False}
    return Sample("pack_conv_weights", given)


OPS = {
    "pack_weights": Op(
        PackCase, PACK_FACTORS, make_pack, cost_of_packing, {}, {"n": 1500, "k": 4200},
        typical=(PackCase(70, 100, 4), PackCase(65, 129, 8)),
    ),
    "pack_conv_weights": Op(
        PackConvCase, PACK_CONV_FACTORS, make_pack_conv, cost_of_packing, {}, {"in_c": 300, "out_c":
        300},
        typical=(PackConvCase(9, 20),),
    ),
    "dequantize_weights": Op(
        DequantizeCase, DEQUANTIZE_FACTORS, make_dequantize, cost_of_packing, DEQUANTIZE_RULES,
        {"n": 1500, "k": 4200},
        typical=(DequantizeCase(130, 320, group_size=32, zero_mode="sub"),),
        from_row=dequantize_from_row,
    ),
}  # fmt: skip
CALLS = {
    "pack_weights": Call(sample_pack, {"n": N, "k": K}, (PackCase(n=70, k=100, bits=4),)),
    "unpack_weights": Call(sample_unpack, {"n": N, "k": K}),
    "dequantize_weights": Call(
        sample_dequantize,
        {"n": N, "k": K, "group_size": 32, "dtype": HALF},
        (DequantizeCase(n=70, k=96, group_size=32, zero_mode="sub"),),
    ),
    "pack_conv_weights": Call(
        sample_pack_conv,
        {"channels": 40, "out_c": 24},
        (PackConvCase(out_c=9, in_c=20, bits=8),),
    ),
}
TRAINED = {
    "dequantize": sample_dequantize,
    "dequantize add": lambda: sample_dequantize("add"),
    "dequantize symmetric": lambda: sample_dequantize(zeros=False, group_size=-1),
}
SHARDED = {
    "pack_weights": lambda: sample_pack(CUT_N, CUT_K),
    "unpack_weights": lambda: sample_unpack(CUT_N, CUT_K),
    "unpack_weights, padded": lambda: sample_unpack(CUT_N - 28, CUT_K),
    "dequantize_weights": lambda: sample_dequantize(group_size=CUT_GROUP, n=CUT_N, k=CUT_K),
    "pack_conv_weights": lambda: sample_pack_conv(8, 128),
}
