"""Fake kernels of conv.py and block.py: output shape, dtype, device and memory format, and the
refusals of the eager ops (csrc/ops/conv/checks.cpp, csrc/ops/block_gemm/checks.cpp)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .arguments import (
    PACKED_RULE,
    check_column_major,
    check_dims,
    check_dtype,
    check_float,
    check_matrix,
    check_rows,
    check_tensors,
    check_vector,
    rows_of,
)
from .conv_problem import (
    ConvGeometry,
    channels_per_tap,
    check_block_size,
    check_conv,
    check_conv_int8,
    check_int8_scalars,
    check_pack_conv,
    conv_packed_shape,
    is_channels_last,
    num_blocks,
    pair,
)
from .errors import shape_text, wrong_value
from .problem import MAX_INT8_K, check_activation, check_problem, num_groups

_BLOCK_RULE = "(ceil(Ci/block_size), Co)"
_IMAGES, _FILTER = "(N, Ci, H, W)", "(Co, Ci, Kh, Kw)"


def _geometry(
    op: str,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> ConvGeometry:
    return ConvGeometry(
        pair(op, "kernel_size", kernel_size),
        pair(op, "stride", stride),
        pair(op, "padding", padding),
        pair(op, "dilation", dilation),
    )


def _new_output(input: Tensor, out_c: int, out_size: tuple[int, int], dtype: torch.dtype) -> Tensor:
    channels_last = is_channels_last(input)
    return torch.empty(
        (input.shape[0], out_c, *out_size),
        dtype=dtype,
        device=input.device,
        memory_format=torch.channels_last if channels_last else torch.contiguous_format,
    )


def _pack_conv_weights(q: Tensor, bits: int, *, check: bool = False) -> Tensor:
    op = "mixed_gemm::pack_conv_weights"
    check_tensors(op, {"q": q})
    check_dtype(op, "q", q, torch.int8, " (signed values)", "q.to(torch.int8)")
    check_dims(op, "q", q, 4, _FILTER)
    if q.numel() == 0:
        wrong_value(op, "q", "not be empty", shape_text(q.shape))
    check_pack_conv(op, q.shape, bits)
    shape = conv_packed_shape(q.shape[0], q.shape[1], q.shape[2:], bits)
    return q.new_empty(shape, dtype=torch.uint8)


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
    check_tensors(
        op,
        {"input": input, "weight_packed": weight_packed, "scales": scales},
        {"offsets": offsets, "bias": bias},
    )
    check_dims(op, "input", input, 4, _IMAGES)
    check_dims(op, "scales", scales, 2, _BLOCK_RULE)
    check_float(op, "input", input.dtype, "input.to(scales.dtype)")
    geometry = _geometry(op, kernel_size, stride, padding, dilation)
    in_c, out_c = input.shape[1], scales.shape[1]
    out_size = check_conv(op, input.shape, out_c, geometry, bits, block_size)
    check_activation(op, activation)
    check_dtype(
        op, "scales", scales, input.dtype, " (the dtype of input)", "scales.to(input.dtype)"
    )
    blocks = (num_blocks(in_c, block_size), out_c)
    because = f"Ci={in_c}, block_size={in_c if block_size == -1 else block_size}"
    check_matrix(op, "scales", scales, _BLOCK_RULE, blocks, because, True)
    if offsets is not None:
        check_dtype(op, "offsets", offsets, input.dtype, " (the dtype of input)")
        check_matrix(op, "offsets", offsets, _BLOCK_RULE, blocks, because, True)
    check_dtype(
        op, "weight_packed", weight_packed, torch.uint8, " (from mixed_gemm.pack_conv_weights)"
    )
    (kernel_h, kernel_w), channels = geometry.kernel_size, channels_per_tap(in_c)
    check_matrix(
        op,
        "weight_packed",
        weight_packed,
        PACKED_RULE.replace("N", "Co"),
        conv_packed_shape(out_c, in_c, geometry.kernel_size, bits),
        f"Co={out_c} from scales, Ci={in_c} from input, K={kernel_h * kernel_w * channels} = "
        f"{kernel_h} * {kernel_w} * {channels} (Ci padded), bits={bits}",
    )
    if bias is not None:
        check_dtype(op, "bias", bias, input.dtype, " (the dtype of input)")
        check_vector(op, "bias", bias, "Co", out_c)
    return _new_output(input, out_c, out_size, input.dtype)


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
    check_tensors(
        op, {"input": input, "weight": weight, "weight_scale": weight_scale}, {"bias": bias}
    )
    check_dims(op, "input", input, 4, _IMAGES)
    check_dims(op, "weight", weight, 4, _FILTER)
    check_dtype(op, "input", input, torch.int8, hint="quantize_per_tensor makes it")
    check_dtype(op, "weight", weight, torch.int8, " (not packed)")
    if weight.shape[1] != input.shape[1]:
        wrong_value(
            op,
            "weight",
            f"be {_FILTER} with Ci={input.shape[1]} of input",
            shape_text(weight.shape),
            hint="groups are not supported",
        )
    out_c = weight.shape[0]
    geometry = _geometry(op, weight.shape[2:], stride, padding, dilation)
    out_size = check_conv_int8(op, input.shape, out_c, geometry)
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
    check_dtype(op, "weight_scale", weight_scale, torch.float32)
    if weight_scale.numel() != 1 or weight_scale.dim() > 1:
        check_vector(op, "weight_scale", weight_scale, "Co", out_c)
    if bias is not None:
        check_dtype(op, "bias", bias, torch.float32)
        check_vector(op, "bias", bias, "Co", out_c)
    return _new_output(input, out_c, out_size, torch.int8)


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
    check_tensors(op, {"a": a, "b": b, "scale_b": scale_b, "offset_b": offset_b}, {"bias": bias})
    check_float(op, "a", a.dtype)
    check_rows(op, "a", a)
    check_dtype(op, "b", b, torch.int8)
    check_column_major(op, a, b)
    k, n = a.shape[-1], b.shape[1]
    check_problem(op, rows_of(a), n, k, 8, -1)
    check_block_size(op, block_size, k, "K")
    if (k if block_size == -1 else block_size) > MAX_INT8_K:
        wrong_value(
            op,
            "a block",
            f"have at most {MAX_INT8_K} elements, so that its int32 sum of products of -128 cannot "
            "wrap",
            f"block_size={block_size}, K={k}",
        )
    check_activation(op, activation)
    blocks = (num_groups(k, block_size) if k else 0, n)
    because = f"K={k}, block_size={max(k, 1) if block_size == -1 else block_size}"
    for name, tensor in (("scale_b", scale_b), ("offset_b", offset_b)):
        check_dtype(op, name, tensor, a.dtype, " (the dtype of a)")
        check_matrix(op, name, tensor, "(ceil(K/block_size), N)", blocks, because, True)
    if bias is not None:
        check_dtype(op, "bias", bias, a.dtype, " (the dtype of a)")
        check_vector(op, "bias", bias, "N", n)
    return a.new_empty((*a.shape[:-1], n))


def register() -> None:
    for name, fake in (
        ("pack_conv_weights", _pack_conv_weights),
        ("qconv2d", _qconv2d),
        ("qconv2d_int8", _qconv2d_int8),
        ("block_quant_gemm", _block_quant_gemm),
    ):
        torch.library.register_fake(f"mixed_gemm::{name}", fake)
