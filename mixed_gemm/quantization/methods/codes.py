"""Codes and their grid as a layer keeps them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...weights.kinds import kind_of
from ...weights.tensor import QuantizedTensor
from ..stage import Site
from .grid import Grid


def as_weight(codes: Tensor, grid: Grid, site: Site) -> QuantizedTensor:
    """What a layer keeps of codes ``[N, K]`` and their grid."""
    scheme, dtype = site.target.scheme, site.dense.dtype
    scales = grid.scale.t().contiguous().to(dtype)
    zeros = None
    if scheme.has_zeros:
        real = grid.zero if scheme.zero_mode == "sub" else -grid.zero * grid.scale
        zeros = (real + 0).t().contiguous().to(dtype)
    kind: Any = kind_of(site.name, scheme, tuple(site.dense.shape))
    made: QuantizedTensor = kind.from_quantized(
        codes.to(torch.int8), scales, zeros,
        bits=scheme.bits, group_size=scheme.group_size, zero_mode=scheme.op_zero_mode,
    )  # fmt: skip
    return made
