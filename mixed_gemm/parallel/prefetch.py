"""Which bytes of the next layer's weight are worth having in L2 while ranks wait for each other."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from ..ops.problem import PAD_K, round_up
from ..weights.integer import IntegerWeight
from ..weights.tensor import QuantizedTensor

# Of the 50 MiB that an H100 or H200 has, beside the activations. Not measured.
PREFETCH_BYTES = 16 * 1024 * 1024
LINE_BYTES = 128


def first_bytes(weight: Any, most_bytes: int) -> Tensor | None:
    """The part of a weight that a product of few rows reads first: the first of K, of all output
    channels.

    Args:
        weight: dense ``[N, K]`` or an ``IntegerWeight``, or a DTensor of one.
        most_bytes: of the part.

    Returns:
        uint8 ``[rows of the storage, bytes of each]``, whole lines of 128 bytes where there are
        more, or None for a weight of another kind or without room for a line of each row.
    """
    if isinstance(weight, DTensor):
        weight = weight.to_local()
    rows = _rows_in_storage(weight)
    if rows is None or rows.numel() == 0:
        return None
    width = min(most_bytes // rows.shape[0] // LINE_BYTES * LINE_BYTES, rows.shape[1])
    return rows[:, :width] if width > 0 else None


def _rows_in_storage(weight: Any) -> Tensor | None:
    """uint8 matrix of which each row holds all of K, for one output channel or a few."""
    if isinstance(weight, IntegerWeight):
        packed = weight.b_packed
        if not packed.is_contiguous():
            return None
        # Not from the scheme, which torch.compile does not see through a DTensor.
        bits = 8 * packed.shape[1] // max(round_up(weight.shape[1], PAD_K), 1)
        columns = 16 // max(bits, 4)  # interleaved in a line (csrc/layout/weight_layout.h)
        return packed.view(packed.shape[0] // columns, columns * packed.shape[1])
    if not isinstance(weight, Tensor) or isinstance(weight, QuantizedTensor):
        return None
    if weight.dim() != 2 or weight.stride(1) != 1:
        return None
    return weight.detach().view(torch.uint8)
