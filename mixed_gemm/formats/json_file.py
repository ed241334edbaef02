"""JSON that others wrote, parsed within bounds: what it may cost is known before it is parsed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import CheckpointError
from .regular_file import RegularFile

# The index of a model with 70,000 experts' matrices, three tensors each, has 21 MB and 210,000
# values. One character beyond 16 bits makes text take four bytes a character, twice while it is
# parsed.
MAX_INDEX_BYTES = 24 << 20
MAX_BYTES = 8 << 20  # the largest configuration; one that names 70,000 modules has 4 MB
MAX_VALUES = 1_000_000  # an empty object takes 90 bytes of memory and 3 of text


class _Duplicate(ValueError):
    """A name that an object has twice: which of the two holds is anybody's guess."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise _Duplicate(f"{name[:200]!r} twice in one object")
            seen.add(name)
    return found


def parse_json(content: bytes | bytearray, path: Path) -> dict[str, Any]:
    """A JSON object in UTF-8.

    Raises:
        CheckpointError: it is none, names something twice in one object, is nested too deeply, or
            has more than a million values.
    """
    if sum(content.count(mark) for mark in (b",", b"[", b"{")) > MAX_VALUES:
        raise CheckpointError(path, "", f"not a readable JSON file (over {MAX_VALUES} values)")
    try:
        text = content.decode("utf-8")
        found = json.loads(text, object_pairs_hook=_object)
    except RecursionError as error:
        raise CheckpointError(path, "", "not a readable JSON file (nested too deeply)") from error
    except (ValueError, MemoryError) as error:
        raise CheckpointError(path, "", f"not a readable JSON file ({error})") from error
    if not isinstance(found, Mapping):
        raise CheckpointError(path, "", f"must hold a JSON object, got {type(found).__name__}")
    return dict(found)


def read_json(path: Path, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """The JSON object in a file of at most ``max_bytes``.

    Raises:
        CheckpointError: as :func:`parse_json`, or the file is no regular one or is too large.
    """
    file = RegularFile(path)
    if file.size > max_bytes:
        raise CheckpointError(
            path, "", f"not a readable JSON file ({file.size} bytes, at most {max_bytes} are read)"
        )
    return parse_json(file.read(0, file.size), path)
