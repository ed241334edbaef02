"""The GPU code that a library holds, read from its section .nv_fatbin without NVIDIA's tools.

    python tools/fatbin.py build/libmixed_gemm.so

The section is a row of containers: a header of 16 bytes (magic, version, length of the header, and
of what follows), then entries, each with a kind (1: PTX, 2: machine code), its own two lengths and
the number of its architecture. A container is one source file compiled for several GPUs.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

SECTION = ".nv_fatbin"
MAGIC = b"\x50\xed\x55\xba"
CONTAINER = struct.Struct("<4sHHQ")
ENTRY = struct.Struct("<HHIQIIHHI")  # kind, version, header, length, ..., architecture
KINDS = {1: "ptx", 2: "sm"}


class Entry(NamedTuple):
    """Code for one architecture.

    Attributes:
        at: offset of its header. kind: "sm" or "ptx". begin, size: of the code behind the header.
    """

    at: int
    kind: str
    arch: int
    begin: int
    size: int


def place(library: Path) -> tuple[int, int]:
    """(offset, size) of the section in the file; size 0 where there is none."""
    listed = subprocess.run(
        ["readelf", "-S", "-W", str(library)], check=True, text=True, stdout=subprocess.PIPE
    ).stdout
    found = re.search(rf"{re.escape(SECTION)} +\w+ +\w+ +(\w+) (\w+)", listed)
    if not found:
        return 0, 0
    offset, size = found.groups()
    return int(offset, 16), int(size, 16)


def section(library: Path) -> bytes:
    """Return the section; empty where there is none."""
    offset, size = place(library)
    return library.read_bytes()[offset : offset + size] if size else b""


def containers(code: bytes | bytearray) -> Iterator[list[Entry]]:
    """Return the entries of each container."""
    at = code.find(MAGIC)
    while at >= 0:
        _, _, header, length = CONTAINER.unpack_from(code, at)
        entry, end = at + header, at + header + length
        found = []
        while entry < end:
            kind, _, own, size, *_, arch = ENTRY.unpack_from(code, entry)
            found.append(Entry(entry, KINDS.get(kind, f"kind {kind}"), arch, entry + own, size))
            entry += own + size
        yield found
        at = code.find(MAGIC, end)


def entries(code: bytes | bytearray) -> Iterator[Entry]:
    """Return all entries."""
    return chain.from_iterable(containers(code))


def contents(library: Path) -> Counter[str]:
    """Count "sm_80", "ptx_90" and so on."""
    return Counter(f"{x.kind}_{x.arch}" for x in entries(section(library)))


if __name__ == "__main__":
    for name, count in sorted(contents(Path(sys.argv[1])).items()):
        print(f"{name}: {count}")
