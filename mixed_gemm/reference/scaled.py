"""The oracle of the 8-bit ops, in float64 and plain torch, as ``gemm`` is for the GEMM."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .bounds import ROUNDING
from .examples import Draw, Example

# fp8 sums on Hopper keep about 14 bits inside the tensor core (measured by others: DeepSeek-V3
# report, section 3.3.2) until they are added to fp32 registers.
HOPPER_FP8_EPSILON = 2.0**-13
# Our wgmma kernels add them after this many elements of K.
FP8_PROMOTION = 128
# As problem/quantize.h: the largest zero point of quantize_per_tensor, and the most steps that a
# row of quantize_per_token may be away from 0.
MAX_AZP = 2**22
MAX_TOKEN_STEPS = 2**21


def accumulator(
    a: Tensor, b: Tensor, azp_adj: Tensor | None = None, azp: Tensor | None = None
) -> Tensor:
    """a @ b - azp * azp_adj as float64 ``[..., N]``. Exact for int8: every partial sum is an
    integer below 2^53."""
    sums = a.double() @ b.double()
    if azp_adj is None:
        return sums
    adjustment = azp_adj.double().reshape(-1)
    return sums - (
        adjustment if azp is None else azp.double().reshape(*a.shape[:-1], 1) * adjustment
    )


def _scales(a: Tensor, scale_a: Tensor, scale_b: Tensor) -> Tensor:
    """scale_a * scale_b, to be broadcast to ``[..., N]``."""
    of_rows = () if scale_a.numel() == 1 else (*a.shape[:-1], 1)
    return scale_a.double().reshape(of_rows) * scale_b.double().reshape(-1)


def _by_block(
    a: Tensor, b: Tensor, scales: tuple[Tensor, Tensor], block_size: tuple[int, int]
) -> tuple[Tensor, Tensor, Tensor]:
    """(product without bias, the sum of the magnitudes of its blocks, and of those of all terms),
    each float64 ``[..., N]``."""
    (k, n), (rows, size) = b.shape, block_size
    scale_a, scale_b = scales[0].double(), scales[1].double()
    scale_a = scale_a.reshape(*a.shape[:-1], scale_b.shape[1])
    value = a.new_zeros((*a.shape[:-1], n), dtype=torch.float64)
    of_blocks, of_terms = value.clone(), value.clone()
    for g, first in enumerate(range(0, k, size)):
        part = slice(first, first + size)
        x, y = a[..., part].double(), b[part].double()
        scale = scale_a[..., g : g + 1] * scale_b[:, g].repeat_interleave(rows)[:n]
        value = value + (x @ y) * scale
        of_blocks = of_blocks + ((x @ y) * scale).abs()
        of_terms = of_terms + (x.abs() @ y.abs()) * scale.abs()
    return value, of_blocks, of_terms


def scaled_mm(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    *,
    azp_adj: Tensor | None = None,
    azp: Tensor | None = None,
    block_size: tuple[int, int] | None = None,
) -> Tensor:
    """Compute what ``mixed_gemm.scaled_mm`` and ``scaled_mm_azp`` approximate, in float64
    ``[..., N]``."""
    if block_size is not None:
        y, _, _ = _by_block(a, b, (scale_a, scale_b), block_size)
    else:
        y = accumulator(a, b, azp_adj, azp) * _scales(a, scale_a, scale_b)
    return y if bias is None else y + bias.double()


def error_bound(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    *,
    out_dtype: torch.dtype,
    azp_adj: Tensor | None = None,
    azp: Tensor | None = None,
    sum_epsilon: float = 2.0**-23,
    block_size: tuple[int, int] | None = None,
    promotion: int | None = None,
) -> Tensor:
    """The bound of docs/numerics.md for W8A8, float64 ``[..., N]``.

    With u32 = 2^-24, p the product without bias and y with it::

        E     = 3 * u32 * |p| + u32 * |y| + tiny + fp8: (K/16 + 5) * e * (|a| @ |b|) * |scales|
        bound = 1.001 * E + u * (|y| + E) + eta

    An int8 sum is exact and rounds to fp32 once; scale_b, scale_a and the bias round once more
    each; the output rounds once (u, eta of ``out_dtype``). 1.001 stands for products of roundings,
    tiny for fp32 results below the normal numbers.

    With blocks of B elements of K, G of them, |p| is the sum over blocks of their magnitudes, and
    the last term of E is (min(K, B)/16 + 5) * e + G * u32, times (|a| @ |b|) * |scales| summed over
    blocks: the sum of each block, and G additions in fp32.

    Args:
        sum_epsilon: e, of the fp8 sum: 2^-23 for tensor cores that truncate fp32 (the CPU rounds).
        promotion: elements of K that a tensor core with ``HOPPER_FP8_EPSILON`` sums by itself
            before they are added in fp32; None: it has ``sum_epsilon`` and sums all of K.
    """
    u, eta = ROUNDING[out_dtype]
    u32 = 2.0**-24
    y = scaled_mm(
        a, b, scale_a, scale_b, bias, azp_adj=azp_adj, azp=azp, block_size=block_size
    ).abs()
    tiny = 2.0**-149 * (1 + scale_a.double().abs().max() if scale_a.numel() else 1)
    k = a.shape[-1]
    if block_size is not None:
        blocks = -(-k // block_size[1])
        _, product, terms = _by_block(a, b, (scale_a, scale_b), block_size)
        tiny = max(blocks, 1) * tiny
        inside = float8_sum_error(min(k, block_size[1]), sum_epsilon, promotion)
        sums = (inside + blocks * u32) * terms
    else:
        scales = _scales(a, scale_a, scale_b)
        product = (accumulator(a, b, azp_adj, azp) * scales).abs()
        terms = a.double().abs() @ b.double().abs() * scales.abs()
        sums = float8_sum_error(k, sum_epsilon, promotion) * terms
    error = 3 * u32 * product + u32 * y + tiny
    if a.dtype != torch.int8:
        error = error + sums
    return 1.001 * error + u * (y + error) + eta


def float8_sum_error(k: int, sum_epsilon: float, promotion: int | None = None) -> float:
    """How far the sum of K exact products may be off, as a part of the sum of their magnitudes."""
    if promotion is None:
        return (k / 16 + 5) * sum_epsilon
    # The error of one part of K inside of the tensor core, then that of an fp32 sum of the parts.
    inside = (min(k, promotion) / 16 + 5) * HOPPER_FP8_EPSILON
    return inside + (k / promotion + 5) * sum_epsilon


def quantize_per_token(
    a: Tensor, *, symmetric: bool = True
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Compute ``mixed_gemm.quantize_per_token`` bit for bit (problem/quantize.h)."""
    x = a.float()
    of_range = x if x.shape[-1] else x.new_zeros((*x.shape[:-1], 1))
    low, high = of_range.amin(-1, keepdim=True), of_range.amax(-1, keepdim=True)
    most = 127 if symmetric else MAX_TOKEN_STEPS
    scale = (torch.maximum(-low, high) / most).clamp(min=torch.finfo(torch.float32).tiny)
    if not symmetric:
        own = (high * 0.5 - low * 0.5) / 127.5
        scale = torch.where(own > scale, own, scale)
    finite = scale.isfinite()
    inverse = torch.where(finite, scale.reciprocal(), 0.0)
    point = torch.where(finite, 0.0 if symmetric else -128 - (low * inverse).round(), 0.0)
    q = torch.where(finite, (x * inverse).round().nan_to_num(0.0) + point, 0.0).clamp(-128, 127)
    return q.to(torch.int8), scale, None if symmetric else point.to(torch.int32)


def quantize_per_tensor(a: Tensor, scale: Tensor, azp: Tensor | None = None) -> Tensor:
    """Compute ``mixed_gemm.quantize_per_tensor`` bit for bit."""
    product = a.float() * scale.reciprocal()
    rounded = torch.where(product.isnan(), 0.0, product.clamp(-(2.0**24), 2.0**24).round())
    point = 0 if azp is None else max(-MAX_AZP, min(MAX_AZP, int(azp)))
    return (rounded + point).clamp(-128, 127).to(torch.int8)


def quantize_fp8(a: Tensor, *, block_size: int | None = None) -> tuple[Tensor, Tensor]:
    """Compute ``mixed_gemm.quantize_fp8`` bit for bit but for the sign of NaN."""
    k = a.shape[-1]
    size = max(k, 1) if block_size is None else block_size
    q, scales = torch.zeros(a.shape, dtype=torch.float8_e4m3fn), []
    for first in range(0, max(k, 1) if block_size is None else k, size):
        x = a[..., first : first + size].float()
        largest = x.abs().amax(-1, keepdim=True) if k else torch.zeros(*a.shape[:-1], 1)
        scale = (largest / 448).clamp(min=torch.finfo(torch.float32).tiny)
        q[..., first : first + size] = (x / scale).clamp(-448, 448).to(q.dtype)
        scales.append(scale)
    return q, torch.cat(scales, -1) if scales else torch.zeros(*a.shape[:-1], 0)


def _per_token(draw: Draw) -> tuple[dict[str, Any], Any]:
    a = draw.normal(16, 512)
    return {"a": a, "symmetric": False}, quantize_per_token(a, symmetric=False)


def _per_tensor(draw: Draw) -> tuple[dict[str, Any], Any]:
    a, scale = draw.normal(16, 512), draw.scales(1, dtype=torch.float32)
    return {"a": a, "scale": scale}, quantize_per_tensor(a, scale)


def _fp8(draw: Draw) -> tuple[dict[str, Any], Any]:
    a = draw.normal(16, 512)
    return {"a": a}, quantize_fp8(a)


EXAMPLES: dict[str, Example] = {
    "quantize_per_token": _per_token,
    "quantize_per_tensor": _per_tensor,
    "quantize_fp8": _fp8,
}
