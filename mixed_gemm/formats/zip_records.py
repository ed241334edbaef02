"""Where the records of a torch file lie: an uncompressed zip archive with a directory at its end.
Read here and not by zipfile, which takes a directory of any size into memory.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from .regular_file import RegularFile

MAX_DIRECTORY = 8 << 20  # bytes, of 110,000 records
_END, _END64, _END64_AT = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_ENTRY, _LOCAL = b"PK\x01\x02", b"PK\x03\x04"
_SMALL = 0xFFFFFFFF  # in a field of 32 bits: the number is in the extra field, in 64 bits


@dataclass(frozen=True)
class Record:
    """``header`` is where its own header begins; the content of ``nbytes`` follows that."""

    name: str
    header: int
    nbytes: int

    def begin(self, file: RegularFile, tensor: str = "") -> int:
        """Where the content begins, inside the file; ``tensor`` for the message."""
        head = file.read(self.header, 30, tensor)
        if head[:4] != _LOCAL:
            raise ValueError(f"no record at byte {self.header}, where {self.name} should be")
        name, extra = struct.unpack_from("<HH", head, 26)
        begin = int(self.header + 30 + name + extra)
        if begin + self.nbytes > file.size:
            raise ValueError(f"{self.name} ends behind the end of the file")
        return begin


def _directory(file: RegularFile) -> tuple[int, int]:
    """Begin and size of the directory, from the record behind it."""
    tail = file.read(max(0, file.size - 65_557), min(file.size, 65_557))
    at = tail.rfind(_END)
    if at < 0 or at + 22 > len(tail):
        raise ValueError("no zip archive; torch writes one since version 1.6")
    size, begin = (int(x) for x in struct.unpack_from("<II", tail, at + 12))
    if _SMALL in (size, begin) and at >= 20 and tail[at - 20 : at - 16] == _END64_AT:
        (where,) = struct.unpack_from("<Q", tail, at - 12)
        end = file.read(where, 56) if where + 56 <= file.size else b""
        if end[:4] != _END64:
            raise ValueError("its directory is cut")
        size, begin = (int(x) for x in struct.unpack_from("<QQ", end, 40))
    if size > MAX_DIRECTORY:
        raise ValueError(f"a directory of {size} bytes, at most {MAX_DIRECTORY} are read")
    if begin + size > file.size:
        raise ValueError("its directory ends behind the end of the file")
    return begin, size


def _wide(extra: bytes, fields: list[int]) -> list[int]:
    """``fields`` with what did not fit into 32 bits taken from the extra field 1."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        at += 4
        if kind == 1 and at + length <= len(extra):
            count = sum(field == _SMALL for field in fields)
            if 8 * count > length:
                raise ValueError("a record without its size")
            wide = iter(struct.unpack_from(f"<{count}Q", extra, at))
            return [next(wide) if field == _SMALL else field for field in fields]
        at += length
    return fields


def read_records(file: RegularFile) -> dict[str, Record]:
    """By name.

    Raises:
        ValueError: it is no zip archive, is cut, or compresses a record.
        CheckpointError: the file cannot be read.
    """
    begin, size = _directory(file)
    directory = bytes(file.read(begin, size))
    found: dict[str, Record] = {}
    at = 0
    while at < size:
        if directory[at : at + 4] != _ENTRY or at + 46 > size:
            raise ValueError("its directory is damaged")
        (method,) = struct.unpack_from("<H", directory, at + 10)
        packed, nbytes, name_size, extra_size, comment = struct.unpack_from(
            "<IIHHH", directory, at + 20
        )
        (header,) = struct.unpack_from("<I", directory, at + 42)
        name = directory[at + 46 : at + 46 + name_size].decode("utf-8", "replace")
        extra = directory[at + 46 + name_size : at + 46 + name_size + extra_size]
        nbytes, packed, header = _wide(extra, [nbytes, packed, header])
        if method != 0 or packed != nbytes:
            raise ValueError(f"{name} is compressed, which torch does not do")
        if name in found:
            raise ValueError(f"{name} is there twice")
        if header + 30 + nbytes > file.size:
            raise ValueError(f"{name} ends behind the end of the file")
        found[name] = Record(name, header, nbytes)
        at += 46 + name_size + extra_size + comment
    return found
