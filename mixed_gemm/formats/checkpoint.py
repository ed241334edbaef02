"""``open_checkpoint``: quantized layers and plain tensors of a checkpoint, read one by one."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from ..weights.exchange import QuantizedWeight
from .codec import Codec
from .config import model_config, quantization_config
from .detect import detect
from .errors import CheckpointError, CheckpointWarning
from .gguf import Gguf
from .index import TensorIndex
from .layer import LayerInfo, LayerTensors, modules_with
from .unread import check_unread


class Checkpoint:
    """A checkpoint that is open for reading. Nothing but headers is read until it is asked for.
    :func:`open_checkpoint` makes it.

    Args:
        path: a folder or one file. index: where each tensor of it lies.
        codec: of the detected format.
        config, quantization_config: as below.
        strict: as of :func:`open_checkpoint`.

    Attributes:
        index: where each tensor of it lies. codec: of the detected format.
        path: the folder or file.
        format: "AWQ gemm", "GPTQ v1", "compressed-tensors pack-quantized", ...
        config: config.json, empty when there is none.
        quantization_config: the part of it, or of quantize_config.json, about quantization.
        files: the files that hold tensors.
        layers: name of a quantized module -> its :class:`LayerInfo`.
        tensors: names of the tensors that belong to no quantized module.
        notes: what the file asks for beyond its weights, in words (8-bit activations).

    Raises:
        CheckpointError: a layer has a shape or dtype that its format does not allow, or a tensor is
            quantized that the format has no place for.
    """

    def __init__(
        self,
        path: Path,
        index: TensorIndex,
        codec: Codec,
        config: dict[str, Any],
        quantization_config: dict[str, Any],
        strict: bool = False,
    ) -> None:
        self.path = path
        self.format = codec.title
        self.notes = codec.notes
        self.config = config
        self.quantization_config = quantization_config
        self.files = index.files
        self.index = index
        self.codec = codec
        self._strict = strict
        names = modules_with(index, codec.anchor)
        layers = {name: codec.describe(LayerTensors(index, name)) for name in names}
        check_unread(index, codec, layers)
        self.layers: Mapping[str, LayerInfo] = MappingProxyType(layers)
        taken = {LayerTensors(index, name).tensor_name(r) for name in layers for r in codec.roles}
        self.tensors = tuple(name for name in index.names() if name not in taken)

    def layer(self, name: str) -> QuantizedWeight:
        """Read one quantized layer, on the CPU.

        Args:
            name: a key of ``layers``.

        Raises:
            KeyError: no quantized layer has this name.
            CheckpointError: its tensors hold what they must not (NaN scales, a broken g_idx), or
                contradict the configuration and the checkpoint was opened as ``strict``.
        """
        info = self.layers[name]
        layer = LayerTensors(self.index, name)
        try:
            with warnings.catch_warnings():
                if self._strict:
                    warnings.simplefilter("error", CheckpointWarning)
                return self.codec.decode(layer, info)
        except (ValueError, CheckpointWarning) as error:
            raise layer.error(self.codec.anchor, str(error)) from error

    def weight_errors(self, dtype: torch.dtype | None = None) -> dict[str, float]:
        """How far quantized layers are from the values of the file: name -> root mean square of
        what was changed over that of the weight. Reads every layer.

        0.0 is exact. What changes a weight is rounding its scales and zero points to ``dtype``,
        and rounding it to other integers where ``notes`` say so. The rounding of each weight to 16
        bits inside of an op (docs/numerics.md) is not in it.

        Args:
            dtype: of the activations; None keeps that of the scales, as ``layer`` gives them.

        Raises:
            CheckpointError: as ``layer``.
        """
        return {name: self._weight_error(name, dtype) for name in self.layers}

    def _weight_error(self, name: str, dtype: torch.dtype | None) -> float:
        stored = self.layer(name)
        if isinstance(self.codec, Gguf):
            truth = self.codec.values(LayerTensors(self.index, name))
        else:
            truth = stored.dequantize()
        stored = stored if dtype is None else stored.to(dtype)
        size = float(truth.norm())
        change = float((stored.dequantize() - truth).norm())
        return change / size if size else change

    def tensor(self, name: str) -> Tensor:
        """Read one tensor as it is in the file, on the CPU.

        Args:
            name: of any tensor of the checkpoint, of a quantized layer or not.

        Raises:
            CheckpointError: there is none of this name, or the file is truncated.
        """
        return self.index.load(name)

    def tensor_shape(self, name: str) -> tuple[int, ...]:
        """Shape of the tensor ``name``, from the header.

        Raises:
            CheckpointError: there is none of this name.
        """
        return self.index.shape(name)

    def tensor_dtype(self, name: str) -> torch.dtype | str:
        """Dtype of the tensor ``name``, from the header; a string when torch has no such dtype.

        Raises:
            CheckpointError: there is none of this name.
        """
        return self.index.dtype(name)

    def __iter__(self) -> Iterator[QuantizedWeight]:
        """Every quantized layer, one at a time in memory."""
        return (self.layer(name) for name in self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __repr__(self) -> str:
        return (
            f"Checkpoint({str(self.path)!r}, {self.format}, {len(self.layers)} quantized layers, "
            f"{len(self.tensors)} other tensors)"
        )


def open_checkpoint(path: str | Path, *, strict: bool = False) -> Checkpoint:
    """Open a quantized checkpoint; the format is detected, never taken from the name.

    Every shape and dtype is checked here, from the headers; values when a layer is read.

    Args:
        path: a folder as save_pretrained writes it (sharded or not), or one .safetensors, .pt,
            .bin or .gguf file.
        strict: where tensors contradict the configuration (GPTQ zero points of the other
            convention), raise when the layer is read instead of a CheckpointWarning.

    Returns:
        An open :class:`Checkpoint`.

    Raises:
        CheckpointError: a file or shard is missing, truncated or contradicts itself, or nothing
            in it is quantized in a format that is known.
    """
    path = Path(path)
    index = TensorIndex(path)
    config = index.config or model_config(path)
    quantization, where = quantization_config(path, config)
    try:
        codec = detect(quantization, where, index)
    except ValueError as error:
        raise CheckpointError(where, "", str(error)) from error
    checkpoint = Checkpoint(path, index, codec, config, quantization, strict)
    if not checkpoint.layers:
        raise CheckpointError(
            path, "", f"is {codec.title} by its configuration, but no tensor is a {codec.anchor}"
        )
    return checkpoint
