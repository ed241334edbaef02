"""Modules whose weights are quantized, in place of those of torch.nn."""

from .conv import Conv2d
from .linear import Linear
from .linear_w8a8 import LinearW8A8

__all__ = ["Conv2d", "Linear", "LinearW8A8"]
