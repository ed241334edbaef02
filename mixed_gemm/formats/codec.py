"""``Codec``: what every checkpoint format is to the rest of the package; ``CODECS`` has them all. A
new format is a file with one class and a row here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import torch

from ..weights.exchange import QuantizedWeight
from .awq import AwqGemm
from .awq_gemv import AwqGemv, AwqGemvFast
from .bitsandbytes import Bitsandbytes
from .compressed_tensors import CompressedTensors
from .gguf import Gguf
from .gpt_oss import GptOss
from .gptq import Gptq
from .layer import Config, LayerInfo, LayerTensors
from .load import Axes, Loaded, Wanted
from .modelopt import ModelOpt
from .native import Native


class Codec(Protocol):
    """One checkpoint format: finds its layers by a tensor that each of them has, the anchor.

    Attributes:
        title: for people, "AWQ gemm".
        anchor: the role of the tensor that every quantized layer has.
        roles: of all tensors that a layer may have.
        notes: what the file asks for and is not done here, in words.
        lost: those of them that saving has no place for.
        axes: role -> (its dimension along the output channels, along K), so that a shard of a layer
            is read without the rest; None where layers are read whole.
    """

    title: str
    anchor: str
    roles: tuple[str, ...]
    notes: tuple[str, ...]
    lost: tuple[str, ...]
    axes: Axes | None

    def describe(self, layer: LayerTensors) -> LayerInfo:
        """Read the headers of a layer, and check every shape and dtype."""

    def decode(self, layer: LayerTensors, info: LayerInfo) -> QuantizedWeight:
        """Read a layer."""

    def module_of(self, name: str) -> str:
        """The kind of a layer: "linear", "conv1d" or "embedding"; ``Decoded`` has it."""

    def dtype_of(self, layer: LayerTensors) -> torch.dtype | None:
        """The dtype that a file wants a weight dequantized to; ``Decoded`` has it."""

    def load(self, layer: LayerTensors, info: LayerInfo, wanted: Wanted) -> Loaded:
        """Read a layer into the weight that products run on; ``Decoded`` has it."""


# Makes a codec from the quantization_config of a checkpoint and the file it stands in.
MakeCodec = Callable[[Config, Path], Codec]

CODECS: dict[str, MakeCodec] = {
    "awq gemm": AwqGemm,
    "awq gemv": AwqGemv,
    "awq gemv_fast": lambda config, where: AwqGemvFast(config, where, "qzeros"),
    "llm-awq": lambda config, where: AwqGemvFast(config, where, "scaled_zeros"),
    "gptq": Gptq,
    "compressed-tensors": CompressedTensors,
    "fp8": lambda config, where: CompressedTensors(config, where, "weight_scale_inv"),
    "gguf": Gguf,
    "bitsandbytes": Bitsandbytes,
    "modelopt": ModelOpt,
    "mxfp4": GptOss,
    "mixed_gemm": Native,
    "fp8 per tensor": CompressedTensors,
}
