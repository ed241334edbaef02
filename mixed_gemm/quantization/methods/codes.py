"""Codes and their grid as a layer keeps them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...weights.codes import nearest_codes
from ...weights.exchange import QuantizedWeight
from ...weights.fp8_blocks import block_of
from ...weights.kinds import kind_of
from ...weights.rounding_fp8 import FP8
from ...weights.scheme import FLOAT8
from ...weights.tensor import QuantizedTensor
from ..block_layer import BlockLayer
from .grid import Grid


def as_weight(codes: Tensor, grid: Grid, layer: BlockLayer) -> QuantizedTensor:
    """Store codes ``[N, K]`` and their grid as the layer keeps them."""
    scheme, dtype = layer.target.scheme, layer.dense.dtype
    kind: Any = kind_of(layer.name, scheme, tuple(layer.dense.shape))
    made: QuantizedTensor
    if grid.range.numbers == FLOAT8:
        block = block_of(scheme, tuple(codes.shape))
        shared = grid.scale[:, 0] if block is None else grid.scale[:: block[0]]
        made = kind.from_quantized(
            codes.to(FP8), shared, scheme=scheme, dtype=dtype, where=layer.name
        )
        return made
    if grid.range.numbers:
        made = kind.store(_exchanged(codes, grid, layer), dtype)
        return made
    scales = grid.scale.t().contiguous().to(dtype)
    zeros = None
    if scheme.has_zeros:
        real = grid.zero if scheme.zero_mode == "sub" else -grid.zero * grid.scale
        zeros = (real + 0).t().contiguous().to(dtype)
    made = kind.from_quantized(codes.to(torch.int8), scales, zeros, **scheme.gemm_options)
    return made


def _exchanged(numbers: Tensor, grid: Grid, layer: BlockLayer) -> QuantizedWeight:
    """Codes that stand for these numbers, and their scales as files have them."""
    scale, whole = grid.scale.to(layer.dense.dtype), None
    if grid.of_bytes is not None:
        scale = grid.of_bytes.of_file(grid.scale).to(torch.bfloat16)
        whole = grid.of_bytes.whole
    return QuantizedWeight.stored_as(
        layer.name,
        nearest_codes(numbers, grid.range.numbers),
        scale.t().contiguous(),
        scheme=layer.target.scheme,
        global_scale=None if whole is None else whole.repeat(len(numbers)),
    )
