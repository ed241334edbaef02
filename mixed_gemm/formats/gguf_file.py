"""The container of a .gguf file: metadata, then tensors at offsets. Parsed here because the reader
of the gguf package maps the file into memory (regular_file.py says what that costs) and walks as
many elements as a file claims to have.

Layout, all of it little-endian: "GGUF", a version (uint32), the number of tensors and of metadata
(uint64 each), the metadata, a record for each tensor, padding, the data. A string is its length in
bytes (uint64) and UTF-8.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from ..ops.problem import MAX_EXTENT, round_up
from .errors import CheckpointError
from .json_file import MAX_INDEX_BYTES
from .regular_file import RegularFile
from .safetensors_file import MAX_NAME

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT = 32  # bytes that data is aligned to, unless the metadata says otherwise
MAX_TENSORS = 100_000
MAX_KEYS = 10_000
MAX_STRINGS = 1_000_000  # in arrays; a vocabulary of 256,000 tokens has 770,000 with its merges
MAX_DIMENSIONS = 4
_MAX_TEXT = 1 << 20  # bytes of one string; a chat template has some 10,000
# The number of a type of metadata -> how struct spells it.
_SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q",
    12: "<d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9

Value = int | float | bool | str


@dataclass(frozen=True)
class Place:
    """One tensor as its record has it.

    type: the number of its type. shape: the slowest dimension first, as in torch.
    offset: of its first byte in the data.
    """

    type: int
    shape: tuple[int, ...]
    offset: int


def begins_as_gguf(path: Path) -> bool:
    """Whether the first bytes of a regular file are those of a GGUF file."""
    try:
        file = RegularFile(path)
        return file.size >= len(MAGIC) and bytes(file.read(0, len(MAGIC))) == MAGIC
    except CheckpointError:
        return False  # whoever opens it next says what it is


class _Header:
    """Reads the head of a file field by field; ValueError where it ends too soon."""

    def __init__(self, content: bytearray, whole: bool) -> None:
        self._content = content
        self._whole = whole  # the content is all of the file
        self._strings = 0  # in arrays, so far
        self.at = 0

    def _advance(self, nbytes: int) -> int:
        begin = self.at
        if nbytes > len(self._content) - begin:
            if self._whole:
                raise ValueError(f"it ends at byte {len(self._content)}, inside of its header")
            raise ValueError(f"a header of more than the {MAX_INDEX_BYTES} bytes that are read")
        self.at = begin + nbytes
        return begin

    def number(self, form: str) -> int:
        return int(self._scalar(form))

    def _scalar(self, form: str) -> Value:
        begin = self._advance(struct.calcsize(form))
        value: Value = struct.unpack_from(form, self._content, begin)[0]
        return value

    def text(self, limit: int = _MAX_TEXT) -> str:
        length = self.number("<Q")
        begin = self._advance(length)
        if length > limit:
            raise ValueError(f"a string of {length} bytes, at most {limit} are read")
        return self._content[begin : begin + length].decode()

    def value(self) -> Value | None:
        """Read a value of the metadata; None for an array, which is passed over."""
        kind = self.number("<I")
        if kind == _STRING:
            return self.text()
        if kind in _SCALARS:
            return self._scalar(_SCALARS[kind])
        if kind != _ARRAY:
            raise ValueError(f"metadata of the unknown type {kind}")
        kind, count = self.number("<I"), self.number("<Q")
        if kind in _SCALARS:
            self._advance(count * struct.calcsize(_SCALARS[kind]))
        elif kind == _STRING:
            self._pass_strings(count)
        else:
            raise ValueError(f"an array of the type {kind}, which is not read")
        return None

    def _pass_strings(self, count: int) -> None:
        self._strings += count
        if self._strings > MAX_STRINGS:
            raise ValueError(f"{self._strings} strings, at most {MAX_STRINGS} are read")
        for _ in range(count):
            self._advance(self.number("<Q"))

    def place(self) -> Place:
        dims = self.number("<I")
        if dims > MAX_DIMENSIONS:
            raise ValueError(f"a tensor of {dims} dimensions")
        shape = tuple(self.number("<Q") for _ in range(dims))[::-1]
        if any(size > MAX_EXTENT for size in shape):
            raise ValueError(f"a tensor of the shape {shape}")
        return Place(self.number("<I"), shape, self.number("<Q"))


class GgufContainer:
    """A .gguf file that is open for reading.

    Attributes:
        path: of the file.
        metadata: key -> number, bool or string; None for what is an array.
        places: name -> where a tensor is and of what type; sizes are checked when the type is
            known, by :meth:`check`.

    Raises:
        CheckpointError: it is no whole GGUF file of version 2 or 3, or is one part of several.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = RegularFile(path)
        size = self._file.size
        content = self._file.read(0, min(size, MAX_INDEX_BYTES))
        try:
            self._read(_Header(content, size == len(content)))
        except (ValueError, struct.error) as error:
            raise self.error(str(error)) from error

    def error(self, reason: str, tensor: str = "") -> CheckpointError:
        return CheckpointError(self.path, tensor, f"not a GGUF file that can be read ({reason})")

    def _read(self, header: _Header) -> None:
        if header.number("<I") != int.from_bytes(MAGIC, "little"):
            raise ValueError("it does not begin with GGUF")
        version = header.number("<I")
        if version not in VERSIONS:
            kind = "big-endian" if version & 0xFFFF == 0 else f"of version {version}"
            raise ValueError(f"it is {kind}; little-endian files of version 2 and 3 are read")
        tensors, keys = header.number("<Q"), header.number("<Q")
        if tensors > MAX_TENSORS or keys > MAX_KEYS:
            raise ValueError(
                f"{tensors} tensors and {keys} metadata, at most {MAX_TENSORS} and {MAX_KEYS} are "
                "read"
            )
        self.metadata: dict[str, Value | None] = {}
        for _ in range(keys):
            key = header.text(MAX_NAME)
            if key in self.metadata:
                raise ValueError(f"the metadata {key!r} twice")
            self.metadata[key] = header.value()
        self.places: dict[str, Place] = {}
        for _ in range(tensors):
            name = header.text(MAX_NAME)
            if name in self.places or not name.isprintable():
                raise ValueError(f"the tensor {name!r} twice, or with a name that is no text")
            self.places[name] = header.place()
        alignment = self.metadata.get("general.alignment", ALIGNMENT)
        if type(alignment) is not int or not 8 <= alignment <= 1 << 20 or alignment % 8:
            raise ValueError(f"general.alignment is {alignment!r}")
        parts = self.metadata.get("split.count", 0)
        if parts not in (0, 1):
            raise ValueError(
                f"it is one of {parts} parts. Hint: llama-gguf-split --merge makes one file of them"
            )
        self._data = round_up(header.at, alignment)

    def check(self, sizes: dict[str, int]) -> None:
        """Compare the bytes of each tensor with the file.

        Raises:
            CheckpointError: one lies outside of the file, or where another does.
        """
        end, before = 0, ""
        for name in sorted(sizes, key=lambda name: self.places[name].offset):
            offset = self.places[name].offset
            if offset < end:
                raise self.error(f"it begins at byte {offset} of the data, inside {before}", name)
            end, before = offset + sizes[name], name
            if self._data + end > self._file.size:
                raise self.error(
                    f"it ends at byte {self._data + end}, and the file has {self._file.size}", name
                )

    def read(self, name: str, nbytes: int, first: int = 0) -> Tensor:
        """uint8 ``[nbytes]`` of a tensor, in memory of their own.

        Args:
            first: byte of the tensor.
        """
        return self._file.read_tensor(self._data + self.places[name].offset + first, nbytes, name)
