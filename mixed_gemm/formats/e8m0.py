"""Scales of one byte that is the exponent of a power of two, 2^(byte - 127): e8m0 of OCP
Microscaling Formats 1.0, as a dtype of torch or as plain bytes. 255 is NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .layer import LayerTensors

E8M0 = torch.float8_e8m0fnu
BYTES = (E8M0, torch.uint8)
_NAN = 255


def powers(found: Tensor) -> Tensor:
    """The numbers that such scales are, float32: the byte is its exponent, and 2^-127 is subnormal.

    Args:
        found: float8_e8m0fnu or uint8, of any shape, without NaN.
    """
    bits = found.view(torch.uint8).to(torch.int32) << 23
    return torch.where(bits == 0, 1 << 22, bits).view(torch.float32)


def load_powers(layer: LayerTensors, role: str) -> Tensor:
    """The numbers that the scales of a layer are, float32 in the shape of the file.

    Args:
        role: of a tensor of such scales.

    Raises:
        CheckpointError: a scale is NaN.
    """
    found = layer.load(role).view(torch.uint8)
    nan = found == _NAN
    if bool(nan.any()):
        at = tuple(nan.nonzero()[0].tolist())
        raise layer.error(role, f"must be finite, got nan at {at}")
    return powers(found)
