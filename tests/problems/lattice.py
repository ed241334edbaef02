"""A call of every op on a lattice of integers: products and sums are exact in float32, and
activations that are rounded to int8 are integers already. So a result, and a derivative, must equal
that of the same function in float64 bit for bit, unless the activation is smooth.

Arguments come in the order in which tests/data/refusals.txt breaks them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

import mixed_gemm
from mixed_gemm import reference
from mixed_gemm.ops.problem import num_groups
from mixed_gemm.reference import conv as reference_conv
from mixed_gemm.reference import floats as reference_floats

from .awq import awq_words

OPS = torch.ops.mixed_gemm
SMOOTH = ("gelu", "gelu_tanh", "silu")
FLOAT = torch.float32


@dataclass(frozen=True)
class Sample:
    """One call. trains: the arguments that ``exact`` takes, in this order."""

    op: str
    arguments: dict[str, Any]
    trains: tuple[str, ...] = ()
    exact: Callable[..., Tensor] | None = None

    def primals(self) -> tuple[Tensor, ...]:
        return tuple(self.arguments[name] for name in self.trains)

    def to(self, device: str) -> Sample:
        """The same call on another device; ``exact`` stays where it is."""
        moved = {
            name: x.to(device) if isinstance(x, Tensor) else x for name, x in self.arguments.items()
        }
        return replace(self, arguments=moved)

    def run(self, *trained: Tensor) -> Any:
        """The op with other values for the arguments that train."""
        return self.call(**dict(zip(self.trains, trained, strict=True)))

    def call(self, **changes: Any) -> Any:
        return getattr(OPS, self.op).default(**{**self.arguments, **changes})

    def frozen(self) -> list[str]:
        """Arguments that could ask for a derivative and have none."""
        return [
            name
            for name, x in self.arguments.items()
            if isinstance(x, Tensor) and x.is_floating_point() and name not in self.trains
        ]

    def without(self, *names: str, **more: Any) -> Sample:
        """The call without some arguments, and with others; nothing tells what it computes."""
        given = {name: x for name, x in self.arguments.items() if name not in names}
        trains = tuple(name for name in self.trains if name not in names)
        return Sample(self.op, {**given, **more}, trains)

    @property
    def is_smooth(self) -> bool:
        return self.arguments.get("activation") in SMOOTH


def integers(*shape: int, low: int = -2, high: int = 2, dtype: torch.dtype = FLOAT) -> Tensor:
    return torch.randint(low, high + 1, shape).to(dtype)


def int8(*shape: int, most: int = 3) -> Tensor:
    return integers(*shape, low=-most, high=most, dtype=torch.int8)


def int32(*shape: int) -> Tensor:
    """Words of packed codes, or sums."""
    return torch.randint(-(2**31), 2**31, shape, dtype=torch.int32)


def powers(*shape: int, dtype: torch.dtype = FLOAT) -> Tensor:
    """Scales: 1/16 or -1/8."""
    return torch.tensor([0.0625, -0.125]).to(dtype)[torch.randint(0, 2, shape)]


def full_range(*shape: int, block: int, low: int = -128) -> Tensor:
    """Integers that int8 holds as they are: each block of a row has a ``low`` and a 127."""
    x = integers(*shape, low=-3, high=3)
    x[..., ::block], x[..., 1::block] = low, 127
    return x


# --- packed weights -------------------------------------------------------------------------------


def gemm(
    shape: tuple[int, ...] = (2, 40),
    dtype: torch.dtype = FLOAT,
    n: int = 5,
    bits: int = 4,
    group_size: int = 16,
    zero_mode: str = "sub",
    zeros: bool = True,
    bias: bool = True,
    pre_scale: bool = True,
    activation: str = "identity",
) -> Sample:
    k = shape[-1]
    groups = (num_groups(k, group_size), n)
    q = int8(n, k)
    scales = powers(*groups, dtype=dtype)
    z = None
    if zeros:
        z = integers(*groups, dtype=dtype) / (1 if zero_mode == "sub" else 8)
    options = {"group_size": group_size, "zero_mode": zero_mode, "activation": activation}
    before = powers(k, dtype=dtype) * 16 if pre_scale else None

    def exact(a: Tensor, bias: Tensor | None = None) -> Tensor:
        return reference.fpA_intB_gemm(a, q, scales, z, bias, before, **options)

    given = {
        "a": integers(*shape, low=-1, high=1, dtype=dtype),
        "b_packed": mixed_gemm.pack_weights(q, bits),
        "scales": scales,
        "zeros": z,
        "bias": integers(n, dtype=dtype) if bias else None,
        "pre_scale": before,
        "bits": bits,
        **options,
    }
    return Sample("fpA_intB_gemm", given, ("a", "bias") if bias else ("a",), exact)


def gemm_config(**sizes: Any) -> Sample:
    """In the configuration that runs on this CPU."""
    given = gemm(**sizes).arguments
    (m, k), n = given["a"].shape, given["scales"].shape[1]
    options = {name: given[name] for name in ("bits", "group_size", "zero_mode")}
    plan = mixed_gemm.plan(m, n, k, dtype=given["a"].dtype, device="cpu", **options)
    return Sample("fpA_intB_gemm_config", {**given, "config": plan.selected})


def dequantize(
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


def pack(n: int = 5, k: int = 40) -> Sample:
    return Sample("pack_weights", {"q": int8(n, k), "bits": 4, "check": False})


def unpack(n: int = 5, k: int = 40) -> Sample:
    packed = mixed_gemm.pack_weights(int8(n, k), 4)
    return Sample("unpack_weights", {"b_packed": packed, "bits": 4, "n": n, "k": k})


def codes(n: int, k: int) -> Tensor:
    """Of e2m1: every number is a half of an integer."""
    return torch.randint(0, 16, (n, k)).to(torch.int8)


def float_gemm(
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
    found = codes(n, k)
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


def float_gemm_config(**sizes: Any) -> Sample:
    """In the configuration that runs on this CPU."""
    given = float_gemm(**sizes).arguments
    (m, k), n = given["a"].shape, given["scales"].shape[1]
    options = {name: given[name] for name in ("weight", "group_size")}
    plan = mixed_gemm.plan(m, n, k, dtype=given["a"].dtype, device="cpu", **options)
    return Sample("fpA_fpB_gemm_config", {**given, "config": plan.selected})


def dequantize_codes(
    group_size: int = 16, dtype: torch.dtype = FLOAT, n: int = 5, k: int = 40
) -> Sample:
    given = {
        "b_packed": mixed_gemm.pack_codes(codes(n, k), "e2m1"),
        "scales": powers(num_groups(k, group_size), n, dtype=dtype),
        "factor": integers(n, low=1, high=3),
        "weight": "e2m1",
        "group_size": group_size,
        "n": n,
        "k": k,
        "dtype": dtype,
    }
    return Sample("dequantize_codes", given)


def pack_codes(n: int = 5, k: int = 40) -> Sample:
    return Sample("pack_codes", {"codes": codes(n, k), "weight": "e2m1"})


def unpack_codes(n: int = 5, k: int = 40) -> Sample:
    packed = mixed_gemm.pack_codes(codes(n, k), "e2m1")
    return Sample("unpack_codes", {"b_packed": packed, "weight": "e2m1", "n": n, "k": k})


def pack_conv(channels: int = 4, out_c: int = 3) -> Sample:
    given = {"q": int8(out_c, channels, 3, 3), "bits": 4, "check": False}
    return Sample("pack_conv_weights", given)


# --- checkpoints ----------------------------------------------------------------------------------


def _awq_weight(
    k: int, n: int, groups: int, dtype: torch.dtype
) -> tuple[dict[str, Any], Callable[[Tensor], Tensor]]:
    """The arguments, and the dense weight of its scales in float64."""
    codes, zeros = torch.randint(5, 12, (k, n)), torch.randint(7, 10, (groups, n))
    scales = powers(groups, n, dtype=dtype)
    weight = {"qweight": awq_words(codes), "scales": scales, "qzeros": awq_words(zeros)}
    integer = (codes.reshape(groups, -1, n) - zeros.unsqueeze(1)).double()
    return weight, lambda scales: (integer * scales.unsqueeze(1)).reshape(k, n)


def awq_dequantize(k: int = 32, n: int = 8, groups: int = 2, dtype: torch.dtype = FLOAT) -> Sample:
    weight, dense = _awq_weight(k, n, groups, dtype)
    return Sample("awq_dequantize", weight, ("scales",), dense)


def awq_gemm(
    m: int = 3,
    k: int = 32,
    n: int = 8,
    groups: int = 2,
    dtype: torch.dtype = FLOAT,
    split_k_iters: int = 1,
) -> Sample:
    weight, dense = _awq_weight(k, n, groups, dtype)
    a = integers(m, k, low=-1, high=1, dtype=dtype)
    given = {"input": a, **weight, "split_k_iters": split_k_iters}
    exact = dense(weight["scales"].double())
    return Sample("awq_gemm", given, ("input",), lambda input: input @ exact)


def awq_repack(k: int = 32, n: int = 8) -> Sample:
    return Sample("awq_repack", {"qweight": int32(k, n // 8)})


def gptq_repack(k: int = 64, n: int = 24) -> Sample:
    order = torch.randperm(k).to(torch.int32)
    return Sample("gptq_repack", {"qweight": int32(k // 8, n), "perm": order, "bits": 4})


# --- 8 bits times 8 bits --------------------------------------------------------------------------


def scaled(
    shape: tuple[int, ...] = (3, 16),
    n: int = 4,
    operand: torch.dtype = torch.int8,
    dtype: torch.dtype = FLOAT,
    scale_a: tuple[int, ...] | None = None,
    scale_b: tuple[int, ...] | None = None,
) -> Sample:
    """The shapes of the scales: one for each row, and a single 1, where none is said, so that
    results fit into bfloat16."""
    k = shape[-1]
    a, b = integers(*shape, dtype=operand), integers(n, k, dtype=operand).t()
    given = {
        "a": a,
        "b": b,
        "scale_a": powers(*((*shape[:-1], 1) if scale_a is None else scale_a)),
        "scale_b": torch.ones(1) if scale_b is None else powers(*scale_b),
        "bias": integers(n, dtype=dtype),
        "out_dtype": dtype,
    }

    def exact(bias: Tensor) -> Tensor:
        y = (a.double() @ b.double()) * given["scale_a"].double() * given["scale_b"].double()
        return y + bias

    return Sample("scaled_mm", given, ("bias",), exact)


def scaled_azp(**sizes: Any) -> Sample:
    plain = scaled(**sizes)
    rows = (*plain.arguments["a"].shape[:-1], 1)
    points = {
        "azp_adj": plain.arguments["b"].sum(0, dtype=torch.int32),
        "azp": integers(*rows, dtype=torch.int32),
    }

    def exact(bias: Tensor) -> Tensor:
        x = plain.arguments
        scale = x["scale_a"].double() * x["scale_b"].double()
        a = x["a"].double() - points["azp"].double()
        return a @ x["b"].double() * scale + bias

    return Sample("scaled_mm_azp", {**plain.arguments, **points}, ("bias",), exact)


def scaled_dynamic(
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


def quantize_per_token(shape: tuple[int, ...] = (3, 8), symmetric: bool = True) -> Sample:
    return Sample("quantize_per_token", {"a": integers(*shape), "symmetric": symmetric})


def quantize_fp8(shape: tuple[int, ...] = (3, 8), block_size: int = 4) -> Sample:
    return Sample("quantize_fp8", {"a": integers(*shape), "block_size": block_size})


def quantize_per_tensor(shape: tuple[int, ...] = (3, 8), one: tuple[int, ...] = ()) -> Sample:
    azp = torch.ones(one, dtype=torch.int32)
    given = {"a": integers(*shape), "scale": torch.ones(one), "azp": azp}
    return Sample("quantize_per_tensor", given)


def block_gemm(
    shape: tuple[int, ...] = (2, 40),
    n: int = 5,
    block: int = 16,
    bias: bool = True,
    activation: str = "identity",
    sums: bool = False,
) -> Sample:
    groups = (num_groups(shape[-1], block), n)
    b = int8(n, shape[-1], most=2).t()
    scale, offset = powers(*groups) / 8, integers(*groups) / 64

    def exact(a: Tensor, bias: Tensor | None = None) -> Tensor:
        w = reference.dequantize(b.t(), scale, offset, group_size=block, zero_mode="add")
        y = a @ w.t() if bias is None else a @ w.t() + bias
        return reference.ACTIVATION_TABLE[activation][0](y)

    given = {
        "a": full_range(*shape, block=block),
        "b": b,
        "scale_b": scale,
        "offset_b": offset,
        "bias": integers(n) if bias else None,
        **({"b_sums": mixed_gemm.ops.block_sums(b, block)} if sums else {}),
        "block_size": block,
        "activation": activation,
    }
    return Sample("block_quant_gemm", given, ("a", "bias") if bias else ("a",), exact)


# --- convolutions ---------------------------------------------------------------------------------


def conv(
    size: tuple[int, int] = (3, 3),
    kernel: tuple[int, int] = (3, 3),
    channels: int = 20,
    out_c: int = 3,
    dtype: torch.dtype = FLOAT,
    offsets: bool = True,
    bias: bool = True,
    activation: str = "identity",
    channels_last: bool = False,
    images: int = 1,
    **geometry: Any,
) -> Sample:
    block = 16 if channels > 16 else -1
    blocks = (num_groups(channels, block), out_c)
    q = integers(out_c, channels, *kernel, dtype=torch.int8)
    scales = powers(*blocks, dtype=dtype)
    offset = integers(*blocks, dtype=dtype) / 16 if offsets else None
    options: dict[str, Any] = {"block_size": block, "activation": activation, **geometry}

    def exact(input: Tensor, bias: Tensor | None = None) -> Tensor:
        return reference_conv.qconv2d(input, q, scales, offset, bias, **options)

    input = integers(images, channels, *size, low=-1, high=1, dtype=dtype)
    if channels_last:
        input = input.contiguous(memory_format=torch.channels_last)
    given = {
        "input": input,
        "weight_packed": mixed_gemm.pack_conv_weights(q, 4),
        "scales": scales,
        "offsets": offset,
        "bias": integers(out_c, dtype=dtype) if bias else None,
        "bits": 4,
        "block_size": block,
        "kernel_size": kernel,
        **geometry,
        "activation": activation,
    }
    return Sample("qconv2d", given, ("input", "bias") if bias else ("input",), exact)


def conv_int8(
    images: int = 2,
    channels: int = 4,
    out_c: int = 3,
    scales: int = 3,
    sums: bool = False,
    **more: Any,
) -> Sample:
    weight = int8(out_c, channels, 3, 3)
    given = {
        "input": int8(images, channels, 5, 5),
        "weight": weight,
        "weight_scale": torch.ones(scales),
        "bias": integers(out_c),
        **({"weight_sums": mixed_gemm.ops.weight_sums(weight)} if sums else {}),
        "input_scale": 0.5,
        "input_zero_point": 1,
        "output_scale": 2.0,
        "output_zero_point": -1,
        **more,
    }
    return Sample("qconv2d_int8", given)
