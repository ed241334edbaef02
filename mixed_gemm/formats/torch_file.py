"""A ``.pt`` or ``.bin`` that torch.save wrote: a pickle that says which tensors are where."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from .errors import CheckpointError
from .regular_file import RegularFile
from .safetensors_file import MAX_NAME
from .torch_pickle import MAX_BYTES, StoredTensor, read_state
from .zip_records import Record, read_records


class TorchFile:
    """Raises CheckpointError for whatever is not a whole file with a state dict."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = RegularFile(path)
        try:
            self._records = read_records(self._file)
            self._folder = self._find_folder()
            self._state = read_state(self._content("data.pkl"))
        except ValueError as error:
            raise CheckpointError(path, "", f"not a whole torch file ({error})") from error
        for name, stored in self._state.items():
            self._check(name, stored)

    def _find_folder(self) -> str:
        pickles = [name for name in self._records if name.endswith("data.pkl")]
        if len(pickles) != 1:
            raise ValueError(f"{len(pickles)} records are called data.pkl")
        folder = pickles[0].removesuffix("data.pkl")
        if f"{folder}byteorder" in self._records:
            self._folder = folder
            order = bytes(self._content("byteorder"))
            if order != b"little":
                raise ValueError(f"its byte order is {order[:16]!r}")
        return folder

    def _content(self, name: str) -> bytearray:
        record = self._records[f"{self._folder}{name}"]
        if record.nbytes > MAX_BYTES:
            raise ValueError(f"{name} of {record.nbytes} bytes, at most {MAX_BYTES} are read")
        return self._file.read(record.begin(self._file), record.nbytes)

    def _record(self, stored: StoredTensor) -> Record | None:
        return self._records.get(f"{self._folder}data/{stored.storage.key}")

    def _check(self, name: str, stored: StoredTensor) -> None:
        if len(name) > MAX_NAME or not name.isprintable():
            raise CheckpointError(self.path, name, "its name is too long, or not printable")
        record = self._record(stored)
        if record is None:
            raise CheckpointError(self.path, name, f"its storage {stored.storage.key} is missing")
        count, span = math.prod(stored.shape), _span(stored)
        if count > span:
            raise CheckpointError(
                self.path,
                name,
                f"repeats its elements: {stored.shape} with strides {stored.stride}. Hint: save a "
                "contiguous copy",
            )
        if (stored.offset + span) * stored.dtype.itemsize > record.nbytes:
            raise CheckpointError(
                self.path,
                name,
                f"has elements up to {stored.offset + span} of {stored.dtype} in a storage of "
                f"{record.nbytes} bytes",
            )

    def names(self) -> Iterable[str]:
        return self._state

    def shape(self, name: str) -> tuple[int, ...]:
        return self._state[name].shape

    def dtype(self, name: str) -> torch.dtype | str:
        return self._state[name].dtype

    def load(self, name: str) -> Tensor:
        """The tensor, in memory of its own."""
        return self._load(name, self._state[name])

    def load_slice(self, name: str, dim: int, start: int, stop: int) -> Tensor:
        """Return ``load(name).narrow(dim, start, stop - start)``, in memory of its own.

        Args:
            name: of the tensor. dim, start, stop: of the slice.
        """
        stored = self._state[name]
        shape = (*stored.shape[:dim], stop - start, *stored.shape[dim + 1 :])
        offset = stored.offset + start * stored.stride[dim]
        return self._load(name, replace(stored, shape=shape, offset=offset)).contiguous()

    def _load(self, name: str, stored: StoredTensor) -> Tensor:
        record = self._record(stored)
        assert record is not None
        size = stored.dtype.itemsize
        try:
            begin = record.begin(self._file, name) + stored.offset * size
        except ValueError as error:
            raise CheckpointError(self.path, name, f"not a whole torch file ({error})") from error
        content = self._file.read_tensor(begin, _span(stored) * size, name)
        return content.view(stored.dtype).as_strided(stored.shape, stored.stride)


def _span(stored: StoredTensor) -> int:
    """Elements from its first to its last, both included."""
    if 0 in stored.shape:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(stored.shape, stored.stride, strict=True))
