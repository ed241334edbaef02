"""What GPU code a library holds, read from its section .nv_fatbin without NVIDIA's tools.

    python tools/fatbin.py build/libmixed_gemm.so

The section is a row of containers: a header of 16 bytes (magic, version, length of the header, and
of what follows), then entries, each with a kind (1: PTX, 2: machine code), its own two lengths and
the number of its architecture.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

SECTION = ".nv_fatbin"
MAGIC = b"\x50\xed\x55\xba"
CONTAINER = struct.Struct("<4sHHQ")
ENTRY = struct.Struct("<HHIQIIHHI")  # kind, version, header, length, ..., architecture
KINDS = {1: "ptx", 2: "sm"}


def section(library: Path) -> bytes:
    """Empty where there is none."""
    listed = subprocess.run(
        ["readelf", "-S", "-W", str(library)], check=True, text=True, stdout=subprocess.PIPE
    ).stdout
    found = re.search(rf"{re.escape(SECTION)} +\w+ +\w+ +(\w+) (\w+)", listed)
    if not found:
        return b""
    offset, size = (int(number, 16) for number in found.groups())
    return library.read_bytes()[offset : offset + size]


def entries(code: bytes) -> Iterator[tuple[int, str, int]]:
    """(offset, kind, architecture) of each."""
    at = code.find(MAGIC)
    while at >= 0:
        _, _, header, length = CONTAINER.unpack_from(code, at)
        entry, end = at + header, at + header + length
        while entry < end:
            kind, _, entry_header, entry_length, *_, arch = ENTRY.unpack_from(code, entry)
            yield entry, KINDS.get(kind, f"kind {kind}"), arch
            entry += entry_header + entry_length
        at = code.find(MAGIC, end)


def contents(library: Path) -> Counter[str]:
    """How often there is "sm_80", "ptx_90" and so on."""
    return Counter(f"{kind}_{arch}" for _, kind, arch in entries(section(library)))


if __name__ == "__main__":
    for name, count in sorted(contents(Path(sys.argv[1])).items()):
        print(f"{name}: {count}")
