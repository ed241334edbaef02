"""Codes and their grid as a layer keeps them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...weights.fp8_blocks import block_of
from ...weights.kinds import kind_of
from ...weights.rounding_fp8 import FP8
from ...weights.tensor import QuantizedTensor
from ..block_layer import BlockLayer
from .grid import Grid


def as_weight(codes: Tensor, grid: Grid, layer: BlockLayer) -> QuantizedTensor:
    """Store codes ``[N, K]`` and their grid as the layer keeps them."""
    scheme, dtype = layer.target.scheme, layer.dense.dtype
    kind: Any = kind_of(layer.name, scheme, tuple(layer.dense.shape))
    made: QuantizedTensor
    if grid.range.is_float8:
        block = block_of(scheme, tuple(codes.shape))
        shared = grid.scale[:, 0] if block is None else grid.scale[:: block[0]]
        made = kind.from_quantized(
            codes.to(FP8), shared, scheme=scheme, dtype=dtype, where=layer.name
        )
        return made
    scales = grid.scale.t().contiguous().to(dtype)
    zeros = None
    if scheme.has_zeros:
        real = grid.zero if scheme.zero_mode == "sub" else -grid.zero * grid.scale
        zeros = (real + 0).t().contiguous().to(dtype)
    made = kind.from_quantized(codes.to(torch.int8), scales, zeros, **scheme.gemm_options)
    return made
