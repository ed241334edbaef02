"""What an input of the fuzzer is: parts, so that mutations of one leave the others whole.

A byte for the kind of the weights, and then config.json, an index (or nothing) and the weights,
each behind 4 bytes of its length.
"""

from __future__ import annotations

import struct
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
DATA = REPOSITORY / "tests" / "data"
FIXTURES = sorted(path for path in DATA.iterdir() if (path / "model.safetensors").exists())
# A safetensors file, the header of one (of zeros), the pickle of a torch file, a whole torch file,
# the weights of a fixture, the tag of a checkpoint of ours, the header of a GGUF file (of zeros).
KINDS = ("safetensors", "header", "pickle", "torch", "fixture", "tag", "gguf")
_MAX_PART = 1 << 20


def join(kind: str, config: bytes, index: bytes, weights: bytes) -> bytes:
    parts = b"".join(struct.pack("<I", len(x)) + x for x in (config, index, weights))
    return bytes([KINDS.index(kind)]) + parts


def split(content: bytes) -> tuple[str, list[bytes]]:
    """Kind and parts of any bytes."""
    kind, content = KINDS[(content or b"\0")[0] % len(KINDS)], content[1:]
    parts = []
    for _ in range(3):
        size = int.from_bytes(content[:4], "little") % _MAX_PART
        parts.append(content[4 : 4 + size])
        content = content[4 + size :]
    parts[-1] += content
    return kind, parts
