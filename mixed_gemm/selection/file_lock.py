"""A lock that lets one process at a time read a file, add to it and replace it."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

POLL_SECONDS = 0.02  # a writer is done in a few milliseconds


@contextmanager
def locked(path: Path, timeout: float) -> Iterator[None]:
    """Hold ``path``, a file that is made where there is none and stays. The kernel frees the lock
    of a process that ends, however it ends; threads of one process exclude each other as well.

    Args:
        path: of the lock file. A symbolic link there is refused.
        timeout: seconds to wait for whoever holds it.

    Raises:
        TimeoutError: somebody held it all the time.
        OSError: the file cannot be opened, or its file system has no locks.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    try:
        _take(descriptor, path, time.monotonic() + timeout)
        yield
    finally:
        os.close(descriptor)  # closing the file frees the lock


def _take(descriptor: int, path: Path, deadline: float) -> None:
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                reason = "held by another process"
                raise TimeoutError(errno.ETIMEDOUT, reason, str(path)) from None
        except OSError as error:
            raise OSError(error.errno, f"no lock: {error.strerror}", str(path)) from error
        time.sleep(POLL_SECONDS)
