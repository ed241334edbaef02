"""The oracle of the 8-bit ops, in float64 and plain torch; the twin of ``reference``."""

from __future__ import annotations

import torch
from torch import Tensor

from .bounds import ROUNDING

# fp8 sums on Hopper keep about 14 bits inside the tensor core (measured by others: DeepSeek-V3
# report, section 3.3.2) until they are added to fp32 registers.
HOPPER_FP8_EPSILON = 2.0**-13
# Elements of K after which our wgmma kernels do that.
FP8_PROMOTION = 128
MAX_AZP = 2**22  # of quantize_per_tensor; as problem/quantize.h


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


def scaled_mm(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    *,
    azp_adj: Tensor | None = None,
    azp: Tensor | None = None,
) -> Tensor:
    """What ``mixed_gemm.scaled_mm`` and ``scaled_mm_azp`` approximate; float64 ``[..., N]``."""
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
    promotion: int | None = None,
) -> Tensor:
    """The bound of docs/numerics.md for W8A8, float64 ``[..., N]``.

    With u32 = 2^-24, p the product without bias and y with it::

        E     = 3 * u32 * |p| + u32 * |y| + tiny + fp8: (K/16 + 5) * e * (|a| @ |b|) * |scales|
        bound = 1.001 * E + u * (|y| + E) + eta

    An int8 sum is exact and rounds to fp32 once; scale_b, scale_a and the bias round once more
    each; the output rounds once (u, eta of ``out_dtype``). 1.001 stands for products of roundings,
    tiny for fp32 results below the normal numbers.

    Args:
        sum_epsilon: e, of the fp8 sum: 2^-23 for tensor cores that truncate fp32 (the CPU rounds).
        promotion: elements of K that a tensor core with ``HOPPER_FP8_EPSILON`` sums by itself
            before they are added in fp32; None: it has ``sum_epsilon`` and sums all of K.
    """
    u, eta = ROUNDING[out_dtype]
    u32 = 2.0**-24
    scales = _scales(a, scale_a, scale_b)
    product = (accumulator(a, b, azp_adj, azp) * scales).abs()
    y = scaled_mm(a, b, scale_a, scale_b, bias, azp_adj=azp_adj, azp=azp).abs()
    tiny = 2.0**-149 * (1 + scale_a.double().abs().max() if scale_a.numel() else 1)
    error = 3 * u32 * product + u32 * y + tiny
    if a.dtype != torch.int8:
        error = error + float8_sum_error(a.shape[-1], sum_epsilon, promotion) * (
            a.double().abs() @ b.double().abs() * scales.abs()
        )
    return 1.001 * error + u * (y + error) + eta


def float8_sum_error(k: int, sum_epsilon: float, promotion: int | None = None) -> float:
    """How far the sum of K exact products may be off, of the sum of their magnitudes."""
    if promotion is None:
        return (k / 16 + 5) * sum_epsilon
    # Of one part of K inside of the tensor core, then of an fp32 sum of the parts.
    inside = (min(k, promotion) / 16 + 5) * HOPPER_FP8_EPSILON
    return inside + (k / promotion + 5) * sum_epsilon


def blocks_mm(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None,
    *,
    block_size: tuple[int, int],
    out_dtype: torch.dtype,
    promotion: int | None = None,
) -> tuple[Tensor, Tensor]:
    """(exact, bound) of float8 with scales of blocks, float64 ``[..., N]``.

    With G blocks, |T| the sum of the magnitudes of all scaled products and y the result::

        E     = (G + 8) * u32 * |T| + 2 * u32 * |bias| + tiny + e(K of a block) * |T|
        bound = 1.001 * E + u * (|y| + E) + eta

    where e is :func:`float8_sum_error`: of each block, the product of two scales rounds once, the
    multiplication with the sum and the addition once more.

    Args:
        scale_a: ``[..., G]``. scale_b: ``[ceil(N / rows), G]``. block_size: (rows, elements of K).
        promotion: as of :func:`error_bound`.
    """
    rows, size = block_size
    n = b.shape[1]
    y = a.new_zeros((*a.shape[:-1], n), dtype=torch.float64)
    terms = torch.zeros_like(y)
    for g in range(scale_b.shape[1]):
        part = slice(g * size, (g + 1) * size)
        left, right = a[..., part].double(), b[part].double()
        of_columns = scale_b[:, g].double().repeat_interleave(rows)[:n]
        scales = scale_a[..., g : g + 1].double() * of_columns
        y = y + (left @ right) * scales
        terms = terms + (left.abs() @ right.abs()) * scales.abs()
    u, eta = ROUNDING[out_dtype]
    u32 = 2.0**-24
    added = 0.0 if bias is None else bias.double().abs()
    y = y if bias is None else y + bias.double()
    inside = float8_sum_error(min(a.shape[-1], size), 2.0**-23, promotion)
    error = ((scale_b.shape[1] + 8) * u32 + inside) * terms + 2 * u32 * added + 2.0**-148
    return y, 1.001 * error + u * (y.abs() + error) + eta


def quantize_per_token(
    a: Tensor, *, symmetric: bool = True
) -> tuple[Tensor, Tensor, Tensor | None]:
    """What ``mixed_gemm.quantize_per_token`` computes, bit for bit (problem/quantize.h)."""
    x = a.float()
    low = x.amin(-1, keepdim=True).clamp(max=0)
    high = x.amax(-1, keepdim=True).clamp(min=0)
    least = torch.finfo(torch.float32).tiny
    if symmetric:
        scale = (torch.maximum(-low, high) / 127).clamp(min=least)
    else:
        scale = (high / 255 - low / 255).clamp(min=least)
    finite = scale.isfinite()
    inverse = torch.where(finite, scale.reciprocal(), 0.0)
    point = (-128 - (low * inverse).round()).clamp(-128, 127)
    point = torch.where(finite, 0.0 if symmetric else point, 0.0)
    q = torch.where(finite, (x * inverse).round().nan_to_num(0.0) + point, 0.0).clamp(-128, 127)
    return q.to(torch.int8), scale, None if symmetric else point.to(torch.int32)


def quantize_per_tensor(a: Tensor, scale: Tensor, azp: Tensor | None = None) -> Tensor:
    """What ``mixed_gemm.quantize_per_tensor`` computes, bit for bit."""
    product = a.float() * scale.reciprocal()
    rounded = torch.where(product.isnan(), 0.0, product.clamp(-(2.0**24), 2.0**24).round())
    point = 0 if azp is None else max(-MAX_AZP, min(MAX_AZP, int(azp)))
    return (rounded + point).clamp(-128, 127).to(torch.int8)
