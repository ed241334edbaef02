"""Measured choices: those of the package (``selection/tuned/*.json``), those that
``mixed_gemm.tune()`` keeps in the user's cache, and those that it measured in this process. A file
that is not just what it should be is ignored, with one warning for all of them; a wrong choice in
it could cost time, never a wrong result, because the library accepts only configurations that it
knows and that fit the problem.
"""

from __future__ import annotations

import errno
import json
import os
import re
import threading
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from .. import _library
from .file_lock import locked
from .tuned_file import (
    FORMAT_VERSION,
    Gpu,
    Point,
    line_of,
    path_of,
    read,
    remove_temporaries,
    write,
)

__all__ = [
    "DIRECTORY",
    "FORMAT_VERSION",
    "SHIPPED",
    "Gpu",
    "Point",
    "current_gpu",
    "directory",
    "forget",
    "install",
    "install_at_import",
    "path_of",
    "read",
    "save",
    "write",
]

DIRECTORY = "MIXED_GEMM_CACHE_DIR"  # overrides the user's cache directory
SHIPPED = Path(__file__).parent / "tuned"
LOCK_SECONDS = 10.0
TOLD = 3  # complaints in a warning, which also counts the others

# Points that were measured in this process.
_measured: dict[tuple[Gpu, tuple[Any, ...]], Point] = {}
_installing = threading.Lock()  # guards _measured and the order of tables


def current_gpu(device: torch.device | str | None = None) -> Gpu:
    p: Any = torch.cuda.get_device_properties(device)
    return Gpu(p.name, 10 * p.major + p.minor, p.multi_processor_count)


def directory() -> Path:
    """Return $MIXED_GEMM_CACHE_DIR, or mixed_gemm in the user's cache directory as the XDG
    specification has it.

    Raises:
        OSError: there is no home directory.
    """
    override = os.environ.get(DIRECTORY)
    if override:
        return Path(override)
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # the specification: a relative one is ignored
        try:
            base = Path.home() / ".cache"
        except RuntimeError:
            raise OSError(errno.ENOENT, f"no home directory; set {DIRECTORY}") from None
    return base / "mixed_gemm"


def save(gpu: Gpu, points: Iterable[Point]) -> Path:
    """Add points to the user's file for this GPU; newer ones replace those of the same problem. A
    file there that cannot be used is kept as ``<name>.unusable``.

    Raises:
        OSError: the file cannot be written or locked (``TimeoutError``).
    """
    path = path_of(gpu, directory())
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with locked(path.with_name(f"{path.name}.lock"), LOCK_SECONDS):
        remove_temporaries(path)
        merged = {point.problem: point for point in _still_there(path)}
        merged |= {point.problem: point for point in points}
        write(path, gpu, merged.values())
    return path


def _still_there(path: Path) -> list[Point]:
    """Read the points of the file that is about to be replaced."""
    try:
        return read(path)[1]
    except FileNotFoundError:
        return []
    except (OSError, ValueError):
        path.replace(path.with_name(path.name + ".unusable"))
        return []


def _lines(gpu: Gpu, points: Iterable[Point]) -> list[str]:
    return [line_of(gpu, point) for point in points]


def _set_table(parts: list[tuple[str, list[str]]]) -> list[str]:
    """Give the library (origin, lines) in turn. Return a complaint for each origin some of whose
    lines it refused."""
    lines = [line for _, part in parts for line in part]
    refused = json.loads(torch.ops.mixed_gemm._set_tuned_table("\n".join(lines)))
    numbered = [
        (int(re.sub(r"\D*(\d+).*", r"\1", text, flags=re.DOTALL)), text) for text in refused
    ]
    complaints = []
    first = 1
    for origin, part in parts:
        of_it = [text for number, text in numbered if first <= number < first + len(part)]
        if of_it:
            why = of_it[0].split(" ", 2)[2]  # without "line 7"
            complaints.append(f"{origin} has {len(of_it)} points that are not usable: one {why}")
        first += len(part)
    return complaints


def install(extra: tuple[Gpu, list[Point]] | None = None) -> None:
    """Give the library the shipped points, the user's over them, and over those what was measured
    in this process, to which ``extra`` is added. Reads files only; CUDA is not touched."""
    with _installing:
        if extra is not None:
            _measured.update({(extra[0], point.problem): point for point in extra[1]})
        parts: list[tuple[str, list[str]]] = []
        complaints: list[str] = []
        for own, paths in ((False, sorted(SHIPPED.glob("*.json"))), (True, _own_files())):
            for path in paths:
                try:
                    parts.append((str(path), _lines(*read(path, own))))
                except (OSError, ValueError) as error:
                    complaints.append(f"{path} {error}")
        measured = [_lines(gpu, [point])[0] for (gpu, _), point in _measured.items()]
        complaints += _set_table([*parts, ("what was measured here", measured)])
    if not complaints:
        return
    more = f"; and {len(complaints) - TOLD} more" if len(complaints) > TOLD else ""
    warnings.warn(
        f"mixed_gemm ignores tuning data: {'; '.join(complaints[:TOLD])}{more}. Hint: delete the "
        "file and run mixed_gemm.tune() again",
        stacklevel=2,
    )


def forget() -> None:
    """Drop what was measured in this process, and install the files again. For tests."""
    with _installing:
        _measured.clear()
    install()


def _own_files() -> list[Path]:
    try:
        return sorted(directory().glob("*.json"))
    except (OSError, ValueError):  # no home, not readable, a name that no file can have
        return []


def install_at_import() -> None:
    """Call install(), if there is a library; nothing in a file or in the environment may break the
    import."""
    if not _library.available:
        return
    try:
        install()
    except Warning:  # the user has asked for warnings to be errors
        raise
    except Exception as error:
        warnings.warn(f"mixed_gemm could not load its tuning data: {error}", stacklevel=2)
