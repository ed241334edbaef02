"""A .gguf file, a model of llama.cpp, seen as a checkpoint of transformers is: with its names, its
order of rows and its config.json. A quantized matrix is the role ``BLOCKS`` of a layer, uint8
``[N, bytes of a row]``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from .errors import CheckpointError
from .gguf_blocks import FLOAT_TYPES, BlockType, block_type, values
from .gguf_file import GgufContainer, Place
from .gguf_models import ROPE_FACTORS, GgufModel

BLOCKS = "weight_blocks"
METHOD = "gguf"  # quant_method of the configuration that a file comes to
_DENSE = ("model.embed_tokens.weight",)  # matrices of modules that are no linear layers
Kind = torch.dtype | BlockType


class GgufFile:
    """The tensors of a .gguf file, by the names of transformers; see ``TensorFile``.

    Attributes:
        path: of the file.
        config: config.json of the model; where layers are quantized, with a quantization_config
            that says the number of the type of each.

    Raises:
        CheckpointError: the file is not whole, or its architecture or the type of a tensor is not
            read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._container = GgufContainer(path)
        places = self._container.places
        self._kinds = {name: self._kind(name, place) for name, place in places.items()}
        self._container.check({name: self._nbytes(name) for name in places})
        shapes = {name: place.shape for name, place in places.items()}
        factors = self._read(ROPE_FACTORS) if ROPE_FACTORS in places else None
        try:
            self._model = GgufModel(self._container.metadata, shapes)
            self.config = self._model.config(factors)
        except ValueError as error:
            raise self._container.error(str(error)) from error
        self._names = {self._name(x): x for x in places if x != ROPE_FACTORS}
        types = {
            name.removesuffix(f".{BLOCKS}"): places[source].type
            for name, source in self._names.items()
            if name.endswith(BLOCKS)
        }
        if types:
            self.config["quantization_config"] = {"quant_method": METHOD, "types": types}

    def _kind(self, name: str, place: Place) -> Kind:
        if place.type in FLOAT_TYPES:
            return FLOAT_TYPES[place.type]
        try:
            kind = block_type(place.type)
        except ValueError as error:
            raise CheckpointError(self.path, name, str(error)) from error
        if len(place.shape) != 2 or place.shape[1] % kind.elements:
            raise CheckpointError(
                self.path,
                name,
                f"must be of two dimensions, with rows in blocks of {kind.elements}, for the type "
                f"{kind.name}, got {place.shape}",
            )
        return kind

    def _nbytes(self, name: str) -> int:
        kind, shape = self._kinds[name], self._container.places[name].shape
        if isinstance(kind, torch.dtype):
            return math.prod(shape) * kind.itemsize
        return math.prod(shape) // kind.elements * kind.nbytes

    def _name(self, source: str) -> str:
        try:
            name = self._model.name_of(source)
        except ValueError as error:
            raise CheckpointError(self.path, source, str(error)) from error
        if isinstance(self._kinds[source], BlockType) and name not in _DENSE:
            return f"{name.removesuffix('.weight')}.{BLOCKS}"
        return name

    def _read(self, source: str) -> Tensor:
        """A tensor as the file has it; of a quantized one its bytes, row by row."""
        kind = self._kinds[source]
        content = self._container.read(source, self._nbytes(source))
        shape = self._container.places[source].shape
        if isinstance(kind, torch.dtype):
            return content.view(kind).view(shape)
        return content.view(shape[0], -1)

    def names(self) -> Iterable[str]:
        return self._names

    def shape(self, name: str) -> tuple[int, ...]:
        source = self._names[name]
        shape, kind = self._container.places[source].shape, self._kinds[source]
        if isinstance(kind, BlockType) and name.endswith(BLOCKS):
            return shape[0], shape[1] // kind.elements * kind.nbytes
        return shape

    def dtype(self, name: str) -> torch.dtype:
        kind = self._kinds[self._names[name]]
        if isinstance(kind, torch.dtype):
            return kind
        return torch.uint8 if name.endswith(BLOCKS) else torch.float32

    def load(self, name: str) -> Tensor:
        """The tensor in the order of rows of transformers; a quantized embedding in float32."""
        source = self._names[name]
        tensor = self._read(source)
        order = self._model.row_order(source)
        if order is not None:
            tensor = tensor[order]
        kind = self._kinds[source]
        if isinstance(kind, torch.dtype) or name.endswith(BLOCKS):
            return tensor
        try:
            return values(tensor, kind)
        except ValueError as error:
            raise CheckpointError(self.path, name, str(error)) from error
