"""Modules whose weights are quantized, in place of those of torch.nn."""

from .conv import Conv2d
from .fused import FusedSequential
from .linear import Linear

__all__ = ["Conv2d", "FusedSequential", "Linear"]
