"""GGUF: how llama.cpp stores quantized layers. ``GgufFile`` has the tensors."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..weights.exchange import QuantizedWeight
from .errors import CheckpointError
from .gguf_blocks import (
    REQUANTIZED,
    BlockType,
    block_type,
    values,
    weight_of,
)
from .gguf_tensors import BLOCKS
from .layer import Config, LayerInfo, LayerTensors
from .load import Decoded


class Gguf(Decoded):
    """The codec; see ``Codec``. Its configuration has "types": layer -> number of its type."""

    anchor = BLOCKS
    roles: tuple[str, ...] = (BLOCKS, "bias")
    lost: tuple[str, ...] = ()

    def __init__(self, config: Config, where: Path) -> None:
        types: Any = config.get("types")
        if not isinstance(types, dict) or not all(type(x) is int for x in types.values()):
            raise CheckpointError(where, "", "does not say the types of its layers")
        self._kinds = {name: block_type(number) for name, number in types.items()}
        counts = Counter(kind.name for kind in self._kinds.values())
        self.title = " ".join(["GGUF", *(name for name, _ in counts.most_common(1))])
        rounded = {kind.name for kind in self._kinds.values() if kind.decode is None}
        self.notes = tuple(
            f"{counts[name]} layers are {name} and are rounded to {REQUANTIZED.weight_type} in "
            f"groups of {REQUANTIZED.group_size}; Checkpoint.weight_errors() measures what it "
            "changes"
            for name in sorted(rounded)
        )

    def _kind(self, layer: LayerTensors) -> BlockType:
        if layer.name not in self._kinds:
            raise layer.error(BLOCKS, "is of a type that the file does not say")
        return self._kinds[layer.name]

    def describe(self, layer: LayerTensors) -> LayerInfo:
        kind = self._kind(layer)
        n, nbytes = layer.matrix(BLOCKS, torch.uint8)
        if nbytes % kind.nbytes:
            raise layer.error(BLOCKS, f"has rows of {nbytes} bytes, no multiple of {kind.nbytes}")
        return LayerInfo.stored_as(
            name=layer.name,
            shape=(n, nbytes // kind.nbytes * kind.elements),
            scheme=kind.scheme,
            nbytes=layer.nbytes(self.roles),
            stored_bits=kind.scheme.bits,
        )

    def decode(self, layer: LayerTensors, info: LayerInfo) -> QuantizedWeight:
        bias = layer.bias(info.out_features)
        return weight_of(layer.load(BLOCKS), self._kind(layer), layer.name, bias)

    def values(self, layer: LayerTensors) -> Tensor:
        """float32 ``[N, K]``, before anything is rounded to integers."""
        return values(layer.load(BLOCKS), self._kind(layer))
