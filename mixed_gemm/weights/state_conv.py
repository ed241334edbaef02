"""What a checkpoint of one ``Conv2d`` may hold; the twin of ``state``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from ..ops.conv_problem import Pair, conv_packed_shape, num_blocks
from ..ops.problem import LAYOUT_VERSION
from .state import QuantizedLayer

FLOATS = ("scales", "offsets")  # float buffers, in the dtype of the images


@dataclass(frozen=True)
class QuantizedConv(QuantizedLayer):
    """The part of a convolution that a checkpoint must match; in_features are channels."""

    kernel_size: Pair = (1, 1)
    integers: ClassVar[dict[str, tuple[torch.dtype, ...]]] = {"weight_packed": (torch.uint8,)}
    module: ClassVar[str] = "mixed_gemm.Conv2d"

    def tag(self) -> dict[str, Any]:
        return {
            "layout_version": LAYOUT_VERSION,
            "in_channels": self.in_features,
            "out_channels": self.out_features,
            "kernel_size": list(self.kernel_size),
            "bits": self.scheme.bits,
            "block_size": self.scheme.group_size,
            "offsets": self.scheme.has_zeros,
        }

    def shapes(self) -> dict[str, tuple[int, ...]]:
        in_c, out_c, scheme = self.in_features, self.out_features, self.scheme
        blocks = (num_blocks(in_c, scheme.group_size), out_c)
        return {
            "weight_packed": conv_packed_shape(out_c, in_c, self.kernel_size, scheme.bits),
            "scales": blocks,
            "offsets": blocks,
            "bias": (out_c,),
        }
