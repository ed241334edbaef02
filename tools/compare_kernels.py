"""Whether two builds have the same kernels, instruction by instruction, whatever these are called.

    python tools/compare_kernels.py OLD.so NEW.so

Compares the machine code of every kernel on every architecture, as bytes, so a move of sources or a
new namespace is seen to change nothing. Prints the kernels that one side has alone. Exit status: 0
equal, 1 not, 77 when cuobjdump is missing (`make test` installs it from PyPI).
"""

from __future__ import annotations

import hashlib
import shutil
import struct
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

SKIPPED = 77
Code = tuple[str, str]  # architecture, digest of the instructions


def find_cuobjdump() -> Path | None:
    places = [Path(folder) / "nvidia/cu13/bin/cuobjdump" for folder in sys.path]
    places += [Path(found) for found in [shutil.which("cuobjdump")] if found]
    return next((place for place in places if place.is_file()), None)


def text_sections(elf: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield (mangled name, instructions) of every kernel of a cubin, a 64-bit little-endian ELF
    file."""
    (offset,) = struct.unpack_from("<Q", elf, 0x28)
    entry_bytes, count, names_at = struct.unpack_from("<HHH", elf, 0x3A)

    def header(index: int) -> tuple[int, int, int]:
        at = offset + index * entry_bytes
        (name,) = struct.unpack_from("<I", elf, at)
        start, size = struct.unpack_from("<QQ", elf, at + 0x18)
        return name, start, size

    _, names, _ = header(names_at)
    for index in range(count):
        name, start, size = header(index)
        text = elf[names + name : elf.index(b"\0", names + name)].decode()
        if text.startswith(".text."):
            yield text.removeprefix(".text."), elf[start : start + size]


def kernels_of(cuobjdump: Path, library: Path) -> dict[Code, list[str]]:
    found: dict[Code, list[str]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        command = [str(cuobjdump), "-xelf", "all", str(library.resolve())]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        for cubin in sorted(Path(folder).glob("*.cubin")):
            arch = cubin.name.split(".")[-2]
            for name, code in text_sections(cubin.read_bytes()):
                found[arch, hashlib.sha256(code).hexdigest()].append(name)
    return found


def demangled(names: list[str]) -> list[str]:
    done = subprocess.run(["c++filt"], input="\n".join(names), text=True, capture_output=True)
    return done.stdout.splitlines()


def main(old_path: str, new_path: str) -> int:
    cuobjdump = find_cuobjdump()
    if cuobjdump is None:
        print("skipped: no cuobjdump; install the packages that", end=" ")
        print("`python tools/requirements.py test` lists")
        return SKIPPED
    old, new = (kernels_of(cuobjdump, Path(path)) for path in (old_path, new_path))
    counts = [Counter({code: len(names) for code, names in side.items()}) for side in (old, new)]
    for heading, alone, side in (
        ("only in the old build", counts[0] - counts[1], old),
        ("only in the new build", counts[1] - counts[0], new),
    ):
        rows = [(arch, side[arch, digest][0]) for arch, digest in alone]
        for (arch, _), name in sorted(zip(rows, demangled([n for _, n in rows]), strict=True)):
            print(f"{heading}: {arch} {name}")
    equal = sum((counts[0] & counts[1]).values())
    print(f"{equal} of {sum(counts[0].values())} kernels are equal, the new build", end=" ")
    print(f"has {sum(counts[1].values())}")
    return 0 if counts[0] == counts[1] else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
