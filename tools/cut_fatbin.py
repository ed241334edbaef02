"""Zeroes the GPU code of a library that one kind of GPU does not run, so that it compresses to what
this GPU needs. The file keeps its length, so that nothing else in it moves.

    python tools/cut_fatbin.py LIBRARY TARGET 90
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import fatbin
from fatbin import Entry

ZSTD = b"\x28\xb5\x2f\xfd"
Wanted = Callable[[bytes], bool]


def runs_on(entries: list[Entry], arch: int) -> list[Entry]:
    """Entries of one container that a GPU of an architecture (90: compute capability 9.0) takes:
    its own machine code, else the newest PTX that it can compile."""
    own = [x for x in entries if (x.kind, x.arch) == ("sm", arch)]
    older = [x for x in entries if x.kind == "ptx" and x.arch <= arch]
    newest = max((x.arch for x in older), default=0)
    return own or [x for x in older if x.arch == newest]


def cut(code: bytearray, arch: int, wanted: Wanted = lambda _: True) -> int:
    """Zero in place what a GPU does not run, or is not wanted; return the bytes that stay.

    Args:
        code: a section .nv_fatbin. wanted: asked with the code of an entry, decompressed.
    """
    kept = 0
    for entries in fatbin.containers(code):
        running = runs_on(entries, arch)
        for x in entries:
            end = x.begin + x.size
            if x in running and wanted(bytes(code[x.begin : end])):
                kept += x.size
            else:
                code[x.begin : end] = bytes(x.size)
    return kept


def cut_library(library: Path, arch: int, wanted: Wanted = lambda _: True) -> bytes:
    """Return the library with its section cut."""
    whole = bytearray(library.read_bytes())
    offset, size = fatbin.place(library)
    code = whole[offset : offset + size]
    cut(code, arch, wanted)
    whole[offset : offset + size] = code
    return bytes(whole)


# --- FlashAttention 3 ----------------------------------------------------------------------------

# In the name of a kernel: the tile (rows, columns, and the head of the keys; SA_ repeats the number
# of rows), the head of the values, the type of the elements, then whether it is causal, windowed,
# and has a cap of the logits.
_KERNEL = re.compile(
    r"IJNS\w_ILi(\d+)EEE(\w+?)EEELi(\d+)ENS_(10bfloat16_t|6half_t|12float_e4m3_t)"
    r"EfNS_4arch4Sm90ELb\dELb\dELb(\d)"
)


def decompressed(code: bytes) -> bytes:
    """The code of an entry; nvcc compresses large ones."""
    at = code.find(ZSTD)
    if at < 0:
        return code
    import zstandard  # one of the packages that carry_vllm.py installs

    found: bytes = zstandard.ZstdDecompressor().decompressobj().decompress(code[at:])
    return found


def common_heads(code: bytes) -> bool:
    """Whether a kernel of FlashAttention 3 is for heads of 64 or 128 elements in half precision,
    without a cap of the logits; what is no such kernel stays."""
    text = decompressed(code)
    named = sorted(set(re.findall(rb"_ZN[\w]{20,4000}", text)), key=len)
    kernels = [x.decode() for x in named if b"device_kernel" in x and b"FlashAttnFwdSm90" in x]
    found = _KERNEL.search(kernels[0]) if kernels else None
    if found is None:
        return True
    rows, rest, head, element, capped = found.groups()
    if element.startswith("12float") or capped != "0":
        return False
    key_head_is_rows = rest == "SA_SA_" or rest.endswith("ESA_")
    return head == "64" or (head == rows == "128" and key_head_is_rows)


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(cut_library(Path(sys.argv[1]), int(sys.argv[3])))
