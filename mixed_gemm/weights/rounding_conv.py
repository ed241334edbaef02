"""Round-to-nearest quantization of one convolution filter; the twin of ``quantize``."""

from __future__ import annotations

import torch
from torch import Tensor

from ..ops.conv_problem import check_block_size, num_blocks
from ..ops.problem import check_bits, integer_range, integer_weight
from .rounding import _symmetric, checked_dense, nonzero_scale


def _blocks(weight: Tensor, block_size: int) -> Tensor:
    """``[Co, Ci, Kh, Kw]`` -> float32 ``[Co, B, block * Kh * Kw]``; a ragged last block is filled
    up with its first channel, which moves neither extreme."""
    out_c, in_c = weight.shape[:2]
    size = in_c if block_size == -1 else block_size
    blocks = num_blocks(in_c, block_size)
    missing = blocks * size - in_c
    if missing:
        first = (blocks - 1) * size
        filler = weight[:, first : first + 1].expand(-1, missing, -1, -1)
        weight = torch.cat((weight, filler), dim=1)
    return weight.float().reshape(out_c, blocks, -1)


def _asymmetric(x: Tensor, weight: str, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    # The lowest integer stands for the smallest weight. Unlike a zero point, an offset is a real
    # number, so the range need not include 0; integers are chosen for the offset as it is stored.
    low, high = integer_range(weight)
    smallest, largest = x.aminmax(dim=-1, keepdim=True)
    scale = nonzero_scale((largest - smallest) / (high - low), dtype)
    offset = (smallest - low * scale).to(dtype).float()
    # A block of equal weights has no range: it is its offset.
    offset = torch.where(largest == smallest, smallest, offset)
    return torch.round((x - offset) / scale).clamp(low, high), scale, offset


def quantize_conv_weight(
    weight: Tensor, bits: int = 4, block_size: int = -1, symmetric: bool = True
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Round a filter to integers, block by block along Ci; a block spans all taps of its filter.

    Args:
        weight: float16, bfloat16 or float32 ``[Co, Ci, Kh, Kw]``; meta gives meta.
        bits: 4 or 8.
        block_size: channels that share a scale: -1 (all) or a multiple of 16, at most Ci.
        symmetric: w = q * scale; otherwise w = q * scale + offset.

    Returns:
        q int8 in the shape of ``weight``, scales ``[B, Co]`` in its dtype (never 0, NaN or Inf;
        negative in about half of the symmetric blocks), offsets ``[B, Co]`` or None.

    Raises:
        ValueError: ``bits`` or ``block_size`` is out of range, or the filter is not 4-D, is
            empty, has lost its storage, or holds NaN or Inf.
        TypeError: it has another dtype.
    """
    where = "mixed_gemm.quantize_conv_weight"
    check_bits(where, bits)
    weight = checked_dense(where, weight, ("Co", "Ci", "Kh", "Kw"))
    out_c, in_c = weight.shape[:2]
    check_block_size(where, block_size, in_c)
    x = _blocks(weight, block_size)
    offset: Tensor | None = None
    if symmetric:
        integers, scale = _symmetric(x, integer_weight(bits), weight.dtype)
    else:
        integers, scale, offset = _asymmetric(x, integer_weight(bits), weight.dtype)

    q = integers.reshape(out_c, -1, *weight.shape[2:])[:, :in_c].to(torch.int8).contiguous()

    def per_block(values: Tensor) -> Tensor:
        return values.squeeze(-1).t().contiguous().to(weight.dtype)

    return q, per_block(scale), None if offset is None else per_block(offset)
