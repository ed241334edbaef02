"""Fake kernels of conv_ops.py: output shape, dtype, device and memory format, and the refusals of
the eager ops (csrc/ops/conv_checks.cpp, block_gemm_checks.cpp)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ._checks import _shape, check_dtype, check_same_device, check_shape
from ._fake import like_eager
from .conv_scheme import (
    MAX_CONV_INT8_K,
    ConvGeometry,
    channels_per_tap,
    check_block_size,
    check_elements,
    check_int8_scalars,
    conv_packed_shape,
    is_channels_last,
    num_blocks,
    pair,
)
from .scheme import DTYPES, MAX_INT8_K, check_activation, check_bits, num_groups


def _check_images(op: str, name: str, tensor: Tensor, rule: str) -> None:
    if tensor.dim() != 4:
        raise RuntimeError(f"{op}: {name} must be 4-d {rule}, got {_shape(tensor.shape)}")


def _geometry(
    op: str,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> ConvGeometry:
    geometry = ConvGeometry(
        pair(op, "kernel_size", kernel_size),
        pair(op, "stride", stride),
        pair(op, "padding", padding),
        pair(op, "dilation", dilation),
    )
    geometry.check(op)
    return geometry


def _new_output(
    op: str, input: Tensor, out_c: int, geometry: ConvGeometry, dtype: torch.dtype
) -> Tensor:
    if input.shape[1] < 1 or out_c < 1:
        raise RuntimeError(
            f"{op}: input and weight must have channels, got Ci={input.shape[1]}, Co={out_c}"
        )
    sizes = (input.shape[0], out_c, *geometry.output_size(op, input.shape[2:]))
    check_elements(op, "input", input.shape)
    check_elements(op, "the output", sizes)
    channels_last = is_channels_last(input)
    return torch.empty(
        sizes,
        dtype=dtype,
        device=input.device,
        memory_format=torch.channels_last if channels_last else torch.contiguous_format,
    )


@like_eager
def _pack_conv_weights(q: Tensor, bits: int) -> Tensor:
    op = "mixed_gemm::pack_conv_weights"
    check_bits(op, bits)
    _check_images(op, "q", q, "(Co, Ci, Kh, Kw)")
    check_dtype(op, "q", q, torch.int8, "q holds signed integers: q.to(torch.int8)")
    if q.numel() == 0:
        raise RuntimeError(f"{op}: q must not be empty, got {_shape(q.shape)}")
    shape = conv_packed_shape(q.shape[0], q.shape[1], q.shape[2:], bits)
    return q.new_empty(shape, dtype=torch.uint8)


@like_eager
def _qconv2d(
    input: Tensor,
    weight_packed: Tensor,
    scales: Tensor,
    offsets: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    bits: int,
    block_size: int = -1,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    activation: str = "identity",
) -> Tensor:
    op = "mixed_gemm::qconv2d"
    _check_images(op, "input", input, "(N, Ci, H, W)")
    if scales.dim() != 2:
        raise RuntimeError(
            f"{op}: scales must be 2-d (ceil(Ci/block_size), Co), got {_shape(scales.shape)}"
        )
    if input.dtype not in DTYPES:
        raise RuntimeError(
            f"{op}: input must be float16, bfloat16 or float32, got {input.dtype}. "
            "Hint: input.to(scales.dtype)"
        )
    check_bits(op, bits)
    geometry = _geometry(op, kernel_size, stride, padding, dilation)
    in_c, out_c = input.shape[1], scales.shape[1]
    output = _new_output(op, input, out_c, geometry, input.dtype)
    check_block_size(op, block_size, in_c)
    check_activation(op, activation)

    because = f"Ci={in_c}, block_size={block_size}"
    blocks = (num_blocks(in_c, block_size), out_c)
    check_dtype(op, "scales", scales, input.dtype, "scales.to(input.dtype)")
    check_shape(op, "scales", scales, "(ceil(Ci/block_size), Co)", blocks, because)
    if offsets is not None:
        check_dtype(op, "offsets", offsets, input.dtype, "offsets.to(input.dtype)")
        check_shape(op, "offsets", offsets, "(ceil(Ci/block_size), Co)", blocks, because)
    check_dtype(
        op, "weight_packed", weight_packed, torch.uint8, "mixed_gemm.pack_conv_weights makes it"
    )
    check_shape(
        op,
        "weight_packed",
        weight_packed,
        "(round_up(Co, 64), round_up(K, 64) * bits / 8)",
        conv_packed_shape(out_c, in_c, geometry.kernel_size, bits),
        f"Co={out_c} from scales, Ci={in_c} from input, kernel_size={geometry.kernel_size}, "
        f"K = Kh * Kw * {channels_per_tap(in_c)}, bits={bits}",
    )
    if bias is not None:
        check_dtype(op, "bias", bias, input.dtype, "bias.to(input.dtype)")
        check_shape(op, "bias", bias, "(Co,)", (out_c,), f"Co={out_c} from scales")
    tensors = {"input": input, "weight_packed": weight_packed, "scales": scales}
    check_same_device(op, "input", {**tensors, "offsets": offsets, "bias": bias})
    return output


@like_eager
def _qconv2d_int8(
    input: Tensor,
    weight: Tensor,
    weight_scale: Tensor,
    bias: Tensor | None = None,
    *,
    input_scale: float,
    input_zero_point: int,
    output_scale: float,
    output_zero_point: int,
    clamp_min: int = -128,
    clamp_max: int = 127,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
) -> Tensor:
    op = "mixed_gemm::qconv2d_int8"
    _check_images(op, "input", input, "(N, Ci, H, W)")
    _check_images(op, "weight", weight, "(Co, Ci, Kh, Kw)")
    check_dtype(op, "input", input, torch.int8, "quantize_per_tensor makes it")
    check_dtype(op, "weight", weight, torch.int8, "int8 values, not packed")
    if weight.shape[1] != input.shape[1]:
        raise RuntimeError(
            f"{op}: weight must be (Co, Ci, Kh, Kw) with Ci={input.shape[1]} of input, got "
            f"{_shape(weight.shape)}. Hint: groups are not supported"
        )
    geometry = _geometry(op, weight.shape[2:], stride, padding, dilation)
    output = _new_output(op, input, weight.shape[0], geometry, torch.int8)
    k = math.prod(weight.shape[1:])
    if k > MAX_CONV_INT8_K:
        raise RuntimeError(
            f"{op}: K = Ci * Kh * Kw must be at most {MAX_CONV_INT8_K}, so that the int32 sum of "
            f"products of 255 and -128 cannot wrap, got K={k}"
        )
    check_int8_scalars(
        op,
        {"input_scale": input_scale, "output_scale": output_scale},
        {
            "input_zero_point": input_zero_point,
            "output_zero_point": output_zero_point,
            "clamp_min": clamp_min,
            "clamp_max": clamp_max,
        },
    )
    out_c = weight.shape[0]
    check_dtype(op, "weight_scale", weight_scale, torch.float32, "weight_scale.float()")
    if weight_scale.numel() != 1 or weight_scale.dim() > 1:
        check_shape(op, "weight_scale", weight_scale, "(Co,)", (out_c,), f"Co={out_c} of weight")
    if bias is not None:
        check_dtype(op, "bias", bias, torch.float32, "bias.float()")
        check_shape(op, "bias", bias, "(Co,)", (out_c,), f"Co={out_c} of weight")
    tensors = {"input": input, "weight": weight, "weight_scale": weight_scale, "bias": bias}
    check_same_device(op, "input", tensors)
    return output


@like_eager
def _block_quant_gemm(
    a: Tensor,
    b: Tensor,
    scale_b: Tensor,
    offset_b: Tensor,
    bias: Tensor | None = None,
    *,
    block_size: int,
    activation: str = "identity",
) -> Tensor:
    op = "mixed_gemm::block_quant_gemm"
    if a.dim() < 1:
        raise RuntimeError(f"{op}: a must be (..., K), got a 0-d tensor")
    if a.dtype not in DTYPES:
        raise RuntimeError(f"{op}: a must be float16, bfloat16 or float32, got {a.dtype}")
    check_dtype(op, "b", b, torch.int8, "b holds signed integers")
    k = a.shape[-1]
    if b.dim() != 2 or b.shape[0] != k:
        looks = ". Hint: it looks transposed, pass weight.t() of an [N, K] weight"
        raise RuntimeError(
            f"{op}: b must be (K, N) with K={k} of a, got {_shape(b.shape)}"
            f"{looks if b.dim() == 2 and b.shape[1] == k else ''}"
        )
    if k > 1 and b.stride(0) != 1:
        raise RuntimeError(
            f"{op}: b must be column-major, stride(0) == 1 as weight.t() of a contiguous [N, K] "
            f"weight has it, got strides {_shape(b.stride())}. Hint: b.t().contiguous().t(), once"
        )
    n = b.shape[1]
    check_block_size(op, block_size, k, "K")
    check_activation(op, activation)
    if (k if block_size == -1 else block_size) > MAX_INT8_K:
        raise RuntimeError(
            f"{op}: a block must have at most {MAX_INT8_K} elements, so that its int32 sum of "
            f"products of -128 cannot wrap, got block_size={block_size}, K={k}"
        )
    blocks = (num_groups(k, block_size) if k else 0, n)
    for name, tensor in (("scale_b", scale_b), ("offset_b", offset_b)):
        check_dtype(op, name, tensor, a.dtype, f"{name}.to(a.dtype)")
        because = f"K={k}, block_size={block_size}"
        check_shape(op, name, tensor, "(ceil(K/block_size), N)", blocks, because)
    if bias is not None:
        check_dtype(op, "bias", bias, a.dtype, "bias.to(a.dtype)")
        check_shape(op, "bias", bias, "(N,)", (n,), f"N={n} from b")
    tensors = {"a": a, "b": b, "scale_b": scale_b, "offset_b": offset_b, "bias": bias}
    check_same_device(op, "a", tensors)
    return a.new_empty((*a.shape[:-1], n))


def register() -> None:
    for name, fake in (
        ("pack_conv_weights", _pack_conv_weights),
        ("qconv2d", _qconv2d),
        ("qconv2d_int8", _qconv2d_int8),
        ("block_quant_gemm", _block_quant_gemm),
    ):
        torch.library.register_fake(f"mixed_gemm::{name}", fake)
