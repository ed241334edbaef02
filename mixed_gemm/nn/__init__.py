"""Modules whose weights are quantized, in place of those of torch.nn."""

from .conv import Conv2d
from .conv_int8 import Int8Conv2d
from .embedding import Embedding
from .fused import FusedSequential
from .linear import Linear

__all__ = ["Conv2d", "Embedding", "FusedSequential", "Int8Conv2d", "Linear"]
