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
from .placing import PLACES, place, poison_output
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
