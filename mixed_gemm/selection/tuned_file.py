"""One file of measured choices: its JSON, who may have written it, and its replacement in one step.

What is read here is not yet trusted: the library takes only configurations that it knows, and asks
of each whether it fits the problem.
"""

from __future__ import annotations

import errno
import json
import os
import re
import reprlib
import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from ..ops.problem import LAYOUT_VERSION, integer_weight

FORMAT_VERSION = 2  # the version that is written
READ_VERSIONS = (1, 2)  # version 1 has "bits" of integers, and GEMMs with scales as activations
MAX_BYTES = 4 << 20  # 22,000 points


class Gpu(NamedTuple):
    """The GPU, which a choice depends on besides the problem."""

    name: str
    sm: int
    sms: int


@dataclass(frozen=True)
class Point:
    """The fastest configuration measured for one problem.

    op: "gemm". dtype: of the activations. weight: the name of a weight type. scales: what a scale
    is, "same" as the activations or the name of a dtype. zeros: the scheme has zero points.
    """

    op: str = field(default="gemm", kw_only=True)
    dtype: str
    weight: str
    scales: str = field(default="same", kw_only=True)
    group_size: int
    zeros: bool
    n: int
    k: int
    m: int
    config: str
    us: float

    @property
    def problem(self) -> tuple[Any, ...]:
        return (self.op, self.dtype, self.weight, self.scales, self.group_size, self.zeros,
                self.n, self.k, self.m)  # fmt: skip


_TYPES = {"str": str, "int": int, "bool": bool, "float": float}
_FIELDS = {f.name: _TYPES[str(f.type)] for f in fields(Point)}
_NEW_FIELDS = ("op", "weight", "scales")
_FIELDS_1 = {name: _FIELDS[name] for name in _FIELDS if name not in _NEW_FIELDS} | {"bits": int}


def path_of(gpu: Gpu, folder: Path) -> Path:
    slug = re.sub(r"[^a-z0-9]+", "_", gpu.name.lower()).strip("_")
    return folder / f"{slug}_sm{gpu.sm}_{gpu.sms}.json"


def _check_owner(status: os.stat_result) -> None:
    """Refuse a file that somebody else may be able to write: this process will follow it."""
    if status.st_uid != os.geteuid():
        raise ValueError(f"belongs to user {status.st_uid}, not to {os.geteuid()}")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ValueError("can be written by others; chmod go-w makes it usable")


def _read_bytes(path: Path, own: bool) -> bytes:
    """Open a file for reading. The checks are of what was opened, not of what has the name a moment
    earlier; and opening a pipe does not wait for a writer."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (os.O_NOFOLLOW if own else 0)
    try:
        handle = os.open(path, flags)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, a socket
            raise ValueError("is not a regular file") from None
        raise
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("is not a regular file")
        if own:
            _check_owner(status)
        with open(handle, "rb", closefd=False) as file:
            data = file.read(MAX_BYTES + 1)
    finally:
        os.close(handle)
    if len(data) > MAX_BYTES:
        raise ValueError(f"is larger than {MAX_BYTES} bytes")
    return data


def _parse_point(entry: Any, version: int) -> Point:
    names = _FIELDS_1 if version == 1 else _FIELDS
    if not isinstance(entry, dict) or set(entry) != set(names):
        raise ValueError(f"has an entry that is not {{{', '.join(names)}}}")
    for name, kind in names.items():
        value = entry[name]
        good = type(value) is kind or (kind is float and type(value) is int)
        # The library can read 64-bit numbers and short names, and nothing else.
        good = good and (kind is not int or abs(value) < 1 << 63)
        good = good and (kind is not float or abs(value) < 1e9)
        if not good or (kind is str and not re.fullmatch(r"[A-Za-z0-9_]{1,64}", value)):
            raise ValueError(f"has {name}={reprlib.repr(value)} where a {kind.__name__} must be")
    if version == 1:
        others = {name: value for name, value in entry.items() if name != "bits"}
        return Point(weight=integer_weight(entry["bits"]), **others)
    return Point(**entry)


def line_of(gpu: Gpu, point: Point) -> str:
    """Write a point as the library reads it (csrc/dispatch/tuned_table.h)."""
    p = point
    return (
        f"{p.op} {gpu.sm} {gpu.sms} {p.dtype} {p.weight} {p.scales} {p.group_size} {int(p.zeros)} "
        f"{p.n} {p.k} {p.m} {p.config} {float(p.us)!r}"
    )


def read(path: Path, own: bool = True) -> tuple[Gpu, list[Point]]:
    """Read a file.

    Args:
        path: of the file.
        own: it lies in the user's cache, and must be theirs alone.

    Raises:
        OSError, ValueError: with the reason why it cannot be used.
    """
    try:
        data = json.loads(_read_bytes(path, own))
    except RecursionError:
        raise ValueError("is no JSON (nested too deeply)") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is no JSON ({error})") from None
    except UnicodeDecodeError:
        raise ValueError("is no JSON (not UTF-8)") from None
    if not isinstance(data, dict):
        raise ValueError("is no JSON object")
    for name, expected in (("format", READ_VERSIONS), ("layout", (LAYOUT_VERSION,))):
        found = data.get(name)
        if type(found) is not int or found not in expected:
            reads = " and ".join(map(str, expected))
            raise ValueError(f"has {name} {reprlib.repr(found)}, this version reads {reads}")
    gpu, entries = data.get("gpu"), data.get("entries")
    if not isinstance(gpu, dict) or [type(gpu.get(f)) for f in Gpu._fields] != [str, int, int]:
        raise ValueError("does not say which GPU it is for")
    if not isinstance(entries, list):
        raise ValueError("has no list of entries")
    points = [_parse_point(entry, data["format"]) for entry in entries]
    return Gpu(gpu["name"], gpu["sm"], gpu["sms"]), points


def _dump(gpu: Gpu, points: Iterable[Point]) -> str:
    head = {"format": FORMAT_VERSION, "layout": LAYOUT_VERSION, "gpu": gpu._asdict()}
    ordered = sorted(points, key=lambda p: p.problem)
    rows = ",\n".join(json.dumps(asdict(point)) for point in ordered)
    return json.dumps(head)[:-1] + ', "entries": [\n' + rows + "\n]}\n"


def _temporary_prefix(path: Path) -> str:
    return f".{path.name}."


def remove_temporaries(path: Path) -> None:
    """Remove what writers of this file left behind that were killed. Nobody may be writing it
    now."""
    for found in path.parent.iterdir():
        if found.name.startswith(_temporary_prefix(path)) and found.suffix == ".tmp":
            with suppress(OSError):
                found.unlink()


def _sync_folder(folder: Path) -> None:
    """Make the new name survive a power failure, where the file system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write(path: Path, gpu: Gpu, points: Iterable[Point]) -> None:
    """Replace the file in one step: a reader sees the old one or the new one.

    Raises:
        OSError: it cannot be written, or would be too large to be read again. The old one stays.
    """
    text = _dump(gpu, points).encode()
    if len(text) > MAX_BYTES:
        raise OSError(errno.EFBIG, f"would be larger than {MAX_BYTES} bytes", str(path))
    handle, temporary = tempfile.mkstemp(
        dir=path.parent, prefix=_temporary_prefix(path), suffix=".tmp"
    )
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)
