"""Write tensors to safetensors, a new file whenever one is full, named as transformers expects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from torch import Tensor

from .durable import write_new_file
from .regular_file import bytes_of
from .safetensors_file import DTYPES

_RESERVED = "__metadata__"  # in a header, of what is no tensor
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def _content(tensors: dict[str, Tensor]) -> Iterator[bytes | memoryview]:
    """Header and data. Large elements come first, so that every tensor is aligned to its own."""
    order = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))
    header: dict[str, object] = {_RESERVED: {"format": "pt"}}
    end = 0
    for name in order:
        tensor = tensors[name]
        begin, end = end, end + tensor.nbytes
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in order:
        yield bytes_of(tensors[name])


class ShardWriter:
    """``add`` tensors, then ``finish``, which gives the files their names.

    Raises:
        ValueError: safetensors has no such dtype, or no tensor of that name.
        OSError: a file cannot be written.
    """

    def __init__(self, folder: Path, max_shard_bytes: int) -> None:
        self._folder = folder
        self._limit = max_shard_bytes
        self._pending: dict[str, Tensor] = {}
        self._pending_bytes = 0
        self._total_bytes = 0
        self._shards: list[list[str]] = []

    def add(self, name: str, tensor: Tensor) -> None:
        """``tensor`` is copied to the CPU if it is elsewhere, and must not change until it is
        written."""
        if name == _RESERVED:
            raise ValueError(f"{name}: safetensors keeps this name for itself: rename the tensor")
        if tensor.dtype not in _NAMES:
            raise ValueError(f"{name}: safetensors has no dtype for {tensor.dtype}")
        tensor = tensor.detach().cpu().contiguous()
        if self._pending and self._pending_bytes + tensor.nbytes > self._limit:
            self._flush()
        self._pending[name] = tensor
        self._pending_bytes += tensor.nbytes

    def _part(self, number: int) -> Path:
        return self._folder / f"model-{number:05d}.safetensors.part"

    def _flush(self) -> None:
        write_new_file(self._part(len(self._shards) + 1), _content(self._pending))
        self._shards.append(list(self._pending))
        self._total_bytes += self._pending_bytes
        self._pending, self._pending_bytes = {}, 0

    def finish(self) -> None:
        """Write what is left, give the files their names, and an index when there are several."""
        if self._pending or not self._shards:
            self._flush()
        count = len(self._shards)
        names = [f"model-{i:05d}-of-{count:05d}.safetensors" for i in range(1, count + 1)]
        names = names if count > 1 else ["model.safetensors"]
        for number, name in enumerate(names, 1):
            self._part(number).rename(self._folder / name)
        if count == 1:
            return
        weight_map = {t: name for name, ts in zip(names, self._shards, strict=True) for t in ts}
        index = {"metadata": {"total_size": self._total_bytes}, "weight_map": weight_map}
        text = json.dumps(index, indent=2) + "\n"
        write_new_file(self._folder / "model.safetensors.index.json", [text.encode()])
