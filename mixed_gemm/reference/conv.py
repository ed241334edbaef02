"""The oracle of the convolutions and of the block GEMM, in plain torch, as ``gemm`` is for the
GEMM. It computes in float64, but for values that are exact by definition: integers, and the fp32
formulas that choose them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import gemm as reference
from .arguments import bound_arguments, same_arguments
from .bounds import ROUNDING
from .gemm import ACTIVATION_TABLE, num_groups

Pair = tuple[int, int]


def dequantize_filter(
    q: Tensor, scales: Tensor, offsets: Tensor | None = None, *, block_size: int = -1
) -> Tensor:
    """The exact filter, float64 ``[Co, Ci, Kh, Kw]``.

    Args:
        q: int8 ``[Co, Ci, Kh, Kw]``.
        scales: ``[ceil(Ci / block_size), Co]``; offsets the same or None: w = q * scale + offset.
        block_size: channels that share a scale; -1 is all of them.
    """
    in_c = q.shape[1]
    w = q.double() * reference.expand_groups(scales, in_c, block_size)[:, :, None, None]
    if offsets is None:
        return w
    return w + reference.expand_groups(offsets, in_c, block_size)[:, :, None, None]


def qconv2d(
    input: Tensor,
    q: Tensor,
    scales: Tensor,
    offsets: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    block_size: int = -1,
    stride: Pair = (1, 1),
    padding: Pair = (0, 0),
    dilation: Pair = (1, 1),
    activation: str = "identity",
) -> Tensor:
    """Compute what ``mixed_gemm.qconv2d`` approximates, on the unpacked filter, in float64."""
    y = torch.nn.functional.conv2d(
        input.double(),
        dequantize_filter(q, scales, offsets, block_size=block_size),
        None if bias is None else bias.double(),
        stride,
        padding,
        dilation,
    )
    return ACTIVATION_TABLE[activation][0](y)


@same_arguments(qconv2d)
def oracle(*operands: Any, **options: Any) -> tuple[Tensor, Tensor]:
    """(:func:`qconv2d`, :func:`error_bound`) by one GEMM over the patches under the filter."""
    given = bound_arguments(qconv2d, *operands, **options)
    input, q, block_size = given["input"], given["q"], given["block_size"]
    stride, padding, dilation = (given[name] for name in ("stride", "padding", "dilation"))
    n, in_c = input.shape[:2]
    out_c, _, kernel_h, kernel_w = q.shape
    height, width = (
        (size + 2 * p - d * (k - 1) - 1) // s + 1
        for size, k, s, p, d in zip(
            input.shape[2:], (kernel_h, kernel_w), stride, padding, dilation, strict=True
        )
    )
    if n == 0:
        none = input.new_zeros((0, out_c, height, width), dtype=torch.float64)
        return none, none
    patches = torch.nn.functional.unfold(
        input.double(), (kernel_h, kernel_w), dilation, padding, stride
    ).transpose(1, 2)

    def per_element(x: Tensor | None) -> Tensor | None:
        if x is None:
            return None
        wide = x.repeat_interleave(in_c if block_size == -1 else block_size, dim=0)[:in_c]
        return wide.repeat_interleave(kernel_h * kernel_w, dim=0)  # unfold: taps innermost

    wide_scales = per_element(given["scales"])
    assert wide_scales is not None
    of_gemm = reference.oracle(
        patches.to(input.dtype),
        q.reshape(out_c, -1),
        wide_scales,
        per_element(given["offsets"]),
        given["bias"],
        group_size=1,
        zero_mode="add",
        activation=given["activation"],
    )
    size = (n, out_c, height, width)
    expected, bound = (
        x.transpose(1, 2).reshape(size) for x in (of_gemm.expected, of_gemm.statistical)
    )
    return expected, bound


@same_arguments(qconv2d)
def error_bound(*operands: Any, **options: Any) -> Tensor:
    """The bound of ``reference.error_bound`` for the GEMM that the convolution is: rows are the
    patches under the filter, zero outside the image, and every element of K has a scale of its own.
    float64, in the shape of the output.
    """
    return oracle(*operands, **options)[1]


def conv_sums(
    input: Tensor,
    weight: Tensor,
    input_zero_point: int,
    *,
    stride: Pair = (1, 1),
    padding: Pair = (0, 0),
    dilation: Pair = (1, 1),
) -> Tensor:
    """sum of (input - input_zero_point) * weight, int64. Exact: below 2^53 all along, and a pixel
    outside the image counts as the zero point."""
    shifted = input.double() - input_zero_point
    conv = torch.nn.functional.conv2d(shifted, weight.double(), None, stride, padding, dilation)
    return conv.round().long()


def qconv2d_int8(
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
    stride: Pair = (1, 1),
    padding: Pair = (0, 0),
    dilation: Pair = (1, 1),
    weight_sums: Tensor | None = None,
) -> Tensor:
    """Compute ``mixed_gemm.qconv2d_int8`` bit for bit (problem/conv.h). weight_sums are not looked
    at: they change no result."""
    sums = conv_sums(
        input, weight, input_zero_point, stride=stride, padding=padding, dilation=dilation
    )
    multiplier = (input_scale * weight_scale.double().reshape(-1) / output_scale).float()
    zero = torch.zeros(weight.shape[0], dtype=torch.float64, device=weight.device)
    offset = ((zero if bias is None else bias.double()) / output_scale + output_zero_point).float()
    y = sums.float() * multiplier[:, None, None] + offset[:, None, None]
    y = torch.where(y.isnan(), float(clamp_min), y)
    return y.clamp(clamp_min, clamp_max).round().to(torch.int8)


def block_quantize(a: Tensor, block_size: int = -1) -> tuple[Tensor, Tensor, Tensor]:
    """Round activations as ``mixed_gemm.block_quant_gemm`` does, bit for bit
    (problem/block_gemm.h).

    Returns:
        q int8 ``[..., K]``, scale and offset float32 ``[..., G]``: a is about scale * q + offset.
    """
    k = a.shape[-1]
    blocks = num_groups(k, block_size)
    if k == 0:
        none = a.new_zeros((*a.shape[:-1], 0), dtype=torch.float32)
        return none.to(torch.int8), none, none
    size = k if block_size == -1 else block_size
    # The last block is filled up with its own last value, which changes neither end.
    fill = a[..., -1:].expand(*a.shape[:-1], blocks * size - k)
    x = torch.cat([a, fill], dim=-1).float().reshape(*a.shape[:-1], blocks, size)
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    finite = x.isfinite().all(-1, keepdim=True)
    # By a tensor: torch's CUDA division by a number multiplies with its reciprocal.
    levels = torch.full_like(high, 127.5)
    scale = ((high / 2 - low / 2) / levels).clamp(min=torch.finfo(torch.float32).tiny)
    scale = torch.where(finite, scale, torch.nan)
    offset = high - 127 * scale
    q = ((x - offset) * scale.reciprocal()).round().nan_to_num(0.0).clamp(-128, 127)
    q = torch.where(finite, q, 0.0).to(torch.int8).flatten(-2)[..., :k]
    return q, scale.squeeze(-1), offset.squeeze(-1)


_TERMS_AT_ONCE = 1 << 23  # elements of partial products that are held at once


def _terms(
    a: Tensor, b: Tensor, scale_b: Tensor, offset_b: Tensor, block_size: int
) -> tuple[Tensor, Tensor]:
    """The sum over blocks of the four terms, and the sum of their magnitudes; float64."""
    k, n, lead = a.shape[-1], b.shape[1], a.shape[:-1]
    blocks = num_groups(k, block_size)
    size = k if block_size == -1 else block_size
    q, scale, offset = (x.double().flatten(0, -2) for x in block_quantize(a[None], block_size))
    m = q.shape[0]

    def by_block(x: Tensor) -> Tensor:  # [rows, K] -> [blocks, rows, size], zeros at the end
        x = torch.nn.functional.pad(x.double(), (0, blocks * size - k))
        return x.reshape(-1, blocks, size).transpose(0, 1)

    total = torch.zeros(m, n, dtype=torch.float64, device=a.device)
    magnitudes = torch.zeros_like(total)
    if blocks > 0:
        qa, qb = by_block(q), by_block(b.t())
        counts = torch.full((blocks, 1, 1), size, dtype=torch.float64, device=a.device)
        counts[-1] = k - (blocks - 1) * size
        sums_a, sums_b = qa.sum(-1, keepdim=True), qb.sum(-1).unsqueeze(1)
        scale_a, offset_a = (x.t().unsqueeze(-1) for x in (scale, offset))
        sb, ob = (x.double().unsqueeze(1) for x in (scale_b, offset_b))
        step = max(1, _TERMS_AT_ONCE // max(m * n, 1))
        for at in (slice(i, i + step) for i in range(0, blocks, step)):
            terms = (
                scale_a[at] * sb[at] * (qa[at] @ qb[at].transpose(1, 2)),
                scale_a[at] * ob[at] * sums_a[at],
                offset_a[at] * sb[at] * sums_b[at],
                offset_a[at] * ob[at] * counts[at],
            )
            total = total + sum(x.sum(0) for x in terms)
            magnitudes = magnitudes + sum(x.abs().sum(0) for x in terms)
    return total.reshape(*lead, n), magnitudes.reshape(*lead, n)


def block_quant_gemm(
    a: Tensor,
    b: Tensor,
    scale_b: Tensor,
    offset_b: Tensor,
    bias: Tensor | None = None,
    *,
    block_size: int,
    activation: str = "identity",
    b_sums: Tensor | None = None,
) -> Tensor:
    """Compute what ``mixed_gemm.block_quant_gemm`` approximates: the exact product of the rounded
    activations, float64 ``[..., N]``. Each of them is at most half a step of its block from ``a``,
    which no bound here counts. b_sums are not looked at: they change no result."""
    total, _ = _terms(a, b, scale_b, offset_b, block_size)
    return ACTIVATION_TABLE[activation][0](total if bias is None else total + bias.double())


@same_arguments(block_quant_gemm)
def block_error_bound(*operands: Any, **options: Any) -> Tensor:
    """Bound the distance of a correct kernel from :func:`block_quant_gemm`, float64 ``[..., N]``.

    With u32 = 2^-24, G blocks, |T| the summed magnitudes of the four terms of every block, y the
    pre-activation and L the Lipschitz constant of the activation::

        E     = (G + 8) * u32 * |T| + 2 * u32 * |bias| + tiny
        bound = L * E + u * |f(y)| + 8 * u32 * |y| + eta

    An integer sum is exact and rounds to fp32 once; a term is at most three products and two
    additions more, G blocks and the bias are added one after the other, all in fp32 that rounds to
    nearest. Then as in ``reference.error_bound`` (4). tiny covers fp32 underflow.
    """
    return block_oracle(*operands, **options)[1]


@same_arguments(block_quant_gemm)
def block_oracle(*operands: Any, **options: Any) -> tuple[Tensor, Tensor]:
    """(:func:`block_quant_gemm`, :func:`block_error_bound`) at the price of one of them."""
    given = bound_arguments(block_quant_gemm, *operands, **options)
    bias, activation = given.pop("bias"), given.pop("activation")
    del given["b_sums"]
    a, block_size = given["a"], given["block_size"]
    u, eta = ROUNDING[a.dtype]
    u32 = 2.0**-24
    total, magnitudes = _terms(**given)
    wide_bias = torch.zeros((), dtype=torch.float64) if bias is None else bias.double()
    y = total + wide_bias.to(total.device)
    function, lipschitz = ACTIVATION_TABLE[activation]
    blocks = num_groups(a.shape[-1], block_size)
    error = (blocks + 8) * u32 * magnitudes + 2 * u32 * wide_bias.to(total.device).abs()
    error = error + (blocks + 1) * 2.0**-140
    expected = function(y)
    return expected, lipschitz * error + u * expected.abs() + 8 * u32 * y.abs() + eta
