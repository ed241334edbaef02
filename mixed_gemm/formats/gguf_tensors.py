"""A .gguf file, a model of llama.cpp, seen as a checkpoint of transformers is: with its names, its
order of rows and its config.json. A quantized matrix is the role ``BLOCKS`` of a layer, uint8
``[N, bytes of a row]``. A tensor of all experts of a layer is shown as those of each expert.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from .errors import CheckpointError
from .gguf_architectures import ROPE_FACTORS
from .gguf_blocks import FLOAT_TYPES, BlockType, block_type, values
from .gguf_file import GgufContainer, Place
from .gguf_models import GgufModel

BLOCKS = "weight_blocks"
METHOD = "gguf"  # quant_method of the configuration that a file comes to
# Matrices of modules that are no linear layers: an embedding, and routers.
_DENSE = ("model.embed_tokens.weight", ".mlp.gate.weight", ".block_sparse_moe.gate.weight")
Kind = torch.dtype | BlockType


@dataclass(frozen=True)
class _Shown:
    """Where a tensor of the model is.

    source: the tensor of the file. shape: of the model's. expert: the part of the source that it
        is; None where it is all of it.
    """

    source: str
    shape: tuple[int, ...]
    expert: int | None


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
        factors = None
        if ROPE_FACTORS in places:
            factors = self._read(_Shown(ROPE_FACTORS, shapes[ROPE_FACTORS], None))
        try:
            self._model = GgufModel(self._container.metadata, shapes)
            self.config = self._model.config(factors)
        except ValueError as error:
            raise self._container.error(str(error)) from error
        self._shown: dict[str, _Shown] = {}
        for source in places:
            if source != ROPE_FACTORS:
                self._show(source)
        types = {
            name.removesuffix(f".{BLOCKS}"): places[shown.source].type
            for name, shown in self._shown.items()
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
        dims = 3 if "_exps." in name else 2
        if len(place.shape) != dims or place.shape[-1] % kind.elements:
            what = "three dimensions, with experts'" if dims == 3 else "two dimensions, with"
            raise CheckpointError(
                self.path,
                name,
                f"must be of {what} rows in blocks of {kind.elements}, for the type {kind.name}, "
                f"got {place.shape}",
            )
        return kind

    def _nbytes(self, name: str) -> int:
        kind, shape = self._kinds[name], self._container.places[name].shape
        if isinstance(kind, torch.dtype):
            return math.prod(shape) * kind.itemsize
        return math.prod(shape) // kind.elements * kind.nbytes

    def _show(self, source: str) -> None:
        """Show a tensor of the file by its names in the model."""
        try:
            names, shape = self._model.named(source)
        except ValueError as error:
            raise CheckpointError(self.path, source, str(error)) from error
        is_whole = len(self._container.places[source].shape) < 3
        for number, name in enumerate(names):
            if isinstance(self._kinds[source], BlockType) and not name.endswith(_DENSE):
                name = f"{name.removesuffix('.weight')}.{BLOCKS}"
            self._shown[name] = _Shown(source, shape, None if is_whole else number)

    def _read(self, shown: _Shown) -> Tensor:
        """A tensor in the order of rows of the file; of a quantized one its bytes, row by row."""
        kind, total = self._kinds[shown.source], self._nbytes(shown.source)
        if shown.expert is None:
            content = self._container.read(shown.source, total)
        else:
            part = total // self._container.places[shown.source].shape[0]
            content = self._container.read(shown.source, part, shown.expert * part)
        if isinstance(kind, torch.dtype):
            return content.view(kind).view(shown.shape)
        return content.view(shown.shape[0], -1)

    def names(self) -> Iterable[str]:
        return self._shown

    def is_part(self, name: str) -> bool:
        """Whether it is the blocks of one expert, which are read when they are wanted.

        Args:
            name: of a tensor.
        """
        return name.endswith(BLOCKS) and self._shown[name].expert is not None

    def shape(self, name: str) -> tuple[int, ...]:
        shown = self._shown[name]
        kind = self._kinds[shown.source]
        if isinstance(kind, BlockType) and name.endswith(BLOCKS):
            return shown.shape[0], shown.shape[1] // kind.elements * kind.nbytes
        return shown.shape

    def dtype(self, name: str) -> torch.dtype:
        kind = self._kinds[self._shown[name].source]
        if isinstance(kind, torch.dtype):
            return kind
        return torch.uint8 if name.endswith(BLOCKS) else torch.float32

    def load(self, name: str) -> Tensor:
        """The tensor in the order of rows of transformers; a quantized embedding in float32."""
        shown = self._shown[name]
        tensor = self._read(shown)
        order = self._model.row_order(shown.source)
        if order is not None:
            tensor = tensor[order]
        kind = self._kinds[shown.source]
        if isinstance(kind, torch.dtype) or name.endswith(BLOCKS):
            return tensor
        try:
            return values(tensor, kind)
        except ValueError as error:
            raise CheckpointError(self.path, name, str(error)) from error
