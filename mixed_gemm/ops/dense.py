"""Dense weights behind those of the convolution and of the block GEMM."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .conv_problem import channels_per_tap


def dense_filter(
    weight_packed: Tensor,
    scales: Tensor,
    offsets: Tensor | None,
    *,
    bits: int,
    block_size: int,
    in_c: int,
    kernel_size: Sequence[int],
    dtype: torch.dtype,
) -> Tensor:
    """The filter ``[Co, Ci, Kh, Kw]`` behind packed bytes; fp32, then rounded to ``dtype``."""
    out_c, taps = scales.shape[1], math.prod(kernel_size)
    channels = channels_per_tap(in_c)
    q: Tensor = torch.ops.mixed_gemm.unpack_weights(weight_packed, bits, out_c, taps * channels)
    q = q.view(out_c, taps, channels)[..., :in_c].transpose(1, 2)

    def per_channel(x: Tensor) -> Tensor:
        block = in_c if block_size == -1 else block_size
        return x.float().repeat_interleave(block, dim=0)[:in_c].t().unsqueeze(-1)

    weight = q.float() * per_channel(scales)
    if offsets is not None:
        weight = weight + per_channel(offsets)
    return weight.to(dtype).reshape(out_c, in_c, *kernel_size)


def dense_blocks(
    b: Tensor, scale_b: Tensor, offset_b: Tensor, *, block_size: int, dtype: torch.dtype
) -> Tensor:
    """The weight ``[K, N]`` of ``block_quant_gemm``; fp32, then rounded to ``dtype``."""
    k = b.shape[0]
    block = max(k, 1) if block_size == -1 else block_size
    scale, offset = (x.float().repeat_interleave(block, dim=0)[:k] for x in (scale_b, offset_b))
    return (b.float() * scale + offset).to(dtype)
