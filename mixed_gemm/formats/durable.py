"""Files that are on the disk when a function returns: written, then synchronised."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

Bytes = bytes | bytearray | memoryview


def write_new_file(path: Path, parts: Iterable[Bytes]) -> None:
    """Write a file that must not exist yet. What could not be finished is removed.

    Raises:
        OSError: with the path and the reason, "No space left on device" for a full disk.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        try:
            for part in parts:
                rest = memoryview(part)
                while len(rest):
                    rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            raise OSError(error.errno, os.strerror(error.errno or 0), str(path)) from error
        raise


def sync_folder(path: Path) -> None:
    """Until then a crash may undo that files were made, renamed or removed in it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
