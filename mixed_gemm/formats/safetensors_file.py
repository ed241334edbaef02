"""A .safetensors file: 8 bytes with the length of a header, the header, the tensors one after the
other. Parsed here because the safetensors package maps the file into memory (regular_file.py says
what that costs); every rule of the format is checked, so that no tensor lies where another does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .errors import CheckpointError
from .json_file import MAX_INDEX_BYTES, parse_json
from .regular_file import RegularFile

# safetensors' names of dtypes -> torch's
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "F8_E8M0": torch.float8_e8m0fnu,
    "C64": torch.complex64,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
MAX_NAME = 500  # characters of the name of a tensor
_LARGEST = 2**63 - 1  # the largest size of torch


@dataclass(frozen=True)
class _Place:
    """One tensor: begin is its first byte in the file; dtype is a string when torch has none."""

    dtype: torch.dtype | str
    shape: tuple[int, ...]
    begin: int
    nbytes: int


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST


class SafetensorsFile:
    """Raises CheckpointError for whatever is not a whole safetensors file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = RegularFile(path)
        self._places = self._read_header()

    def _error(self, reason: str, tensor: str = "") -> CheckpointError:
        return CheckpointError(self.path, tensor, f"not a whole safetensors file ({reason})")

    def _read_header(self) -> dict[str, _Place]:
        size = self._file.size
        if size < 8:
            raise self._error(f"it has {size} bytes")
        length = int.from_bytes(self._file.read(0, 8), "little")
        if length > size - 8:
            raise self._error(f"a header of {length} bytes in a file of {size}")
        if length > MAX_INDEX_BYTES:
            raise self._error(f"a header of {length} bytes, at most {MAX_INDEX_BYTES} are read")
        header = parse_json(self._file.read(8, length), self.path)
        header.pop("__metadata__", None)
        data = 8 + length
        places = {name: self._place(name, entry, data) for name, entry in header.items()}
        end = data
        for name, place in sorted(places.items(), key=lambda x: (x[1].begin, x[1].nbytes)):
            if place.begin != end:
                raise self._error(f"it begins at byte {place.begin}, not {end}", name)
            end += place.nbytes
        if end != size:
            raise self._error(f"its tensors end at byte {end}, and it has {size}")
        return places

    def _place(self, name: str, entry: Any, data: int) -> _Place:
        if len(name) > MAX_NAME or not name.isprintable():
            raise self._error("its name is too long, or not printable", name)
        if not isinstance(entry, dict):
            raise self._error("its entry is no object", name)
        shape, offsets, dtype = (entry.get(x) for x in ("shape", "data_offsets", "dtype"))
        if not isinstance(dtype, str):
            raise self._error("its dtype is no string", name)
        if not isinstance(shape, list) or not all(map(_is_size, shape)):
            raise self._error("its shape is no list of sizes", name)
        if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)):
            raise self._error("its data_offsets are not two sizes", name)
        begin, nbytes = data + offsets[0], offsets[1] - offsets[0]
        known = DTYPES.get(dtype)
        # Strides multiply the sizes other than 0 too.
        if len(shape) > 64 or math.prod(x or 1 for x in shape) > _LARGEST // 8:
            raise self._error(f"its shape {shape[:8]} is too large", name)
        needed = nbytes if known is None else math.prod(shape) * known.itemsize
        if nbytes < 0 or nbytes != needed:
            raise self._error(f"{needed} bytes of {dtype} {shape} in {nbytes}", name)
        return _Place(known or dtype, tuple(shape), begin, nbytes)

    def names(self) -> Iterable[str]:
        return self._places

    def shape(self, name: str) -> tuple[int, ...]:
        return self._places[name].shape

    def dtype(self, name: str) -> torch.dtype | str:
        return self._places[name].dtype

    @property
    def bytes_read(self) -> int:
        """Bytes read of the file so far, its header included."""
        return self._file.bytes_read

    def _torch_dtype(self, name: str) -> torch.dtype:
        found = self._places[name].dtype
        if not isinstance(found, torch.dtype):
            raise CheckpointError(
                self.path, name, f"is of the dtype {found}, which torch does not have"
            )
        return found

    def load(self, name: str) -> Tensor:
        """The tensor, in memory of its own."""
        place, dtype = self._places[name], self._torch_dtype(name)
        content = self._file.read_tensor(place.begin, place.nbytes, name)
        return content.view(dtype).view(place.shape)

    def load_slice(self, name: str, dim: int, start: int, stop: int) -> Tensor:
        """``load(name).narrow(dim, start, stop - start)``, and no other bytes are read."""
        place, dtype = self._places[name], self._torch_dtype(name)
        before, (extent, after) = place.shape[:dim], (place.shape[dim], place.shape[dim + 1 :])
        inner = math.prod(after) * dtype.itemsize
        content = self._file.read_rows(
            place.begin + start * inner, extent * inner, (stop - start) * inner,
            math.prod(before), name,
        )  # fmt: skip
        return content.view(dtype).view(*before, stop - start, *after)
