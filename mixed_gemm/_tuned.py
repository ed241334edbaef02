"""Files of measured choices: those of the package (``mixed_gemm/tuned/*.json``) and those that
``mixed_gemm.tune()`` keeps in the user's cache. A file that is not just what it should be is
ignored with one warning; a wrong choice in it could cost time, never a wrong result, because the
library accepts only configurations that it knows and that fit the problem.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import tempfile
import warnings
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import torch
from filelock import FileLock

from . import _library
from .scheme import LAYOUT_VERSION

FORMAT_VERSION = 1
DIRECTORY = "MIXED_GEMM_CACHE_DIR"  # overrides the user's cache directory
SHIPPED = Path(__file__).parent / "tuned"
MAX_BYTES = 16 << 20
LOCK_SECONDS = 10.0


class Gpu(NamedTuple):
    """What a choice depends on besides the problem."""

    name: str
    sm: int
    sms: int


@dataclass(frozen=True)
class Point:
    """The fastest configuration measured for one problem; ``zeros``: the scheme has zero points."""

    dtype: str
    bits: int
    group_size: int
    zeros: bool
    n: int
    k: int
    m: int
    config: str
    us: float

    @property
    def problem(self) -> tuple[Any, ...]:
        return (self.dtype, self.bits, self.group_size, self.zeros, self.n, self.k, self.m)


_TYPES = {"str": str, "int": int, "bool": bool, "float": float}


def current_gpu(device: torch.device | str | None = None) -> Gpu:
    p: Any = torch.cuda.get_device_properties(device)
    return Gpu(p.name, 10 * p.major + p.minor, p.multi_processor_count)


def directory() -> Path:
    override = os.environ.get(DIRECTORY)
    if override:
        return Path(override)
    import platformdirs

    return platformdirs.user_cache_path("mixed_gemm")


def path_of(gpu: Gpu, folder: Path) -> Path:
    slug = re.sub(r"[^a-z0-9]+", "_", gpu.name.lower()).strip("_")
    return folder / f"{slug}_sm{gpu.sm}_{gpu.sms}.json"


def _check_owner(path: Path) -> None:
    """Nobody else may be able to write what this process will follow."""
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("is not a regular file")
    if status.st_uid != os.geteuid():
        raise ValueError(f"belongs to user {status.st_uid}, not to {os.geteuid()}")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ValueError("can be written by others; chmod go-w makes it usable")


def _parse_point(entry: Any) -> Point:
    names = {f.name: _TYPES[str(f.type)] for f in fields(Point)}
    if not isinstance(entry, dict) or set(entry) != set(names):
        raise ValueError(f"has an entry that is not {{{', '.join(names)}}}")
    for name, kind in names.items():
        value = entry[name]
        good = type(value) is kind or (kind is float and type(value) is int)
        if not good or (kind is str and not re.fullmatch(r"\w+", value)):
            raise ValueError(f"has {name}={value!r} where a {kind.__name__} is expected")
    return Point(**entry)


def read(path: Path, own: bool = True) -> tuple[Gpu, list[Point]]:
    """The content of a file.

    Args:
        path: of the file.
        own: it lies in the user's cache, and must be theirs alone.

    Raises:
        OSError, ValueError: with the reason why it cannot be used.
    """
    if own:
        _check_owner(path)
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"is larger than {MAX_BYTES} bytes")
    try:
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise ValueError(f"is no JSON ({error})") from None
    if not isinstance(data, dict):
        raise ValueError("is no JSON object")
    for name, expected in (("format", FORMAT_VERSION), ("layout", LAYOUT_VERSION)):
        if data.get(name) != expected:
            raise ValueError(f"has {name} {data.get(name)!r}, this version reads {expected}")
    gpu, entries = data.get("gpu"), data.get("entries")
    if not isinstance(gpu, dict) or [type(gpu.get(f)) for f in Gpu._fields] != [str, int, int]:
        raise ValueError("does not say which GPU it is for")
    if not isinstance(entries, list):
        raise ValueError("has no list of entries")
    return Gpu(gpu["name"], gpu["sm"], gpu["sms"]), [_parse_point(entry) for entry in entries]


def _dump(gpu: Gpu, points: Iterable[Point]) -> str:
    head = {"format": FORMAT_VERSION, "layout": LAYOUT_VERSION, "gpu": gpu._asdict()}
    ordered = sorted(points, key=lambda p: p.problem)
    rows = ",\n".join(json.dumps(asdict(point)) for point in ordered)
    return json.dumps(head)[:-1] + ', "entries": [\n' + rows + "\n]}\n"


def write(path: Path, gpu: Gpu, points: Iterable[Point]) -> None:
    """Replaces the file in one step: a reader sees the old one or the new one."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".tmp")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(_dump(gpu, points))
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def save(gpu: Gpu, points: Iterable[Point]) -> Path:
    """Adds points to the user's file for this GPU; newer ones replace those of the same problem.

    Raises:
        OSError, TimeoutError: the file cannot be written or locked.
    """
    path = path_of(gpu, directory())
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with FileLock(f"{path}.lock", timeout=LOCK_SECONDS):
        merged: dict[tuple[Any, ...], Point] = {}
        with contextlib.suppress(OSError, ValueError):  # absent, or of no use: install() says so
            merged = {point.problem: point for point in read(path)[1]}
        merged |= {point.problem: point for point in points}
        write(path, gpu, merged.values())
    return path


def _lines(gpu: Gpu, points: Iterable[Point]) -> list[str]:
    return [
        f"{gpu.sm} {gpu.sms} {p.dtype} {p.bits} {p.group_size} {int(p.zeros)} {p.n} {p.k} {p.m} "
        f"{p.config} {float(p.us)!r}"
        for p in points
    ]


def install(extra: tuple[Gpu, list[Point]] | None = None) -> None:
    """Gives the library the shipped points, the user's over them, and `extra` over those. Reads
    files only; CUDA is not touched."""
    lines: list[str] = []
    complaints: list[str] = []
    folder = directory()
    for own, paths in ((False, sorted(SHIPPED.glob("*.json"))), (True, _own_files(folder))):
        for path in paths:
            try:
                lines += _lines(*read(path, own))
            except (OSError, ValueError) as error:
                complaints.append(f"{path} {error}")
    if extra is not None:
        lines += _lines(*extra)
    refused = json.loads(torch.ops.mixed_gemm._set_tuned_table("\n".join(lines)))
    if refused:
        complaints.append(f"{len(refused)} points are not usable: {refused[0]}")
    if complaints:
        warnings.warn(
            "mixed_gemm ignores tuning data: " + "; ".join(complaints) + ". Hint: delete the file "
            "and run mixed_gemm.tune() again",
            stacklevel=2,
        )


def _own_files(folder: Path) -> list[Path]:
    try:
        return sorted(folder.glob("*.json"))
    except OSError:
        return []


def install_at_import() -> None:
    """install(), if there is a library; nothing in a file or in the environment may break the
    import."""
    if not _library.available:
        return
    try:
        install()
    except Exception as error:
        warnings.warn(f"mixed_gemm could not load its tuning data: {error}", stacklevel=2)
