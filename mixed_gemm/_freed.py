"""Memory that was freed and given back to the system. glibc keeps what lies between blocks that are
in use: packed weights between the float buffers that made them, so that a process grows to a
multiple of what it holds.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

EVERY = 128 << 20  # bytes of dense weights that are packed between two looks at the heap

_pending = 0


@functools.cache
def _trim() -> Callable[[int], int] | None:
    """glibc's ``malloc_trim``; None where the C library has none."""
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # TypeError: Windows
        return None
    return found


def give_back() -> None:
    """Give freed memory back to the system; nothing where the C library cannot."""
    trim = _trim()
    if trim is not None:
        trim(0)


def packed(nbytes: int) -> None:
    """Take note that a dense weight of so many bytes was packed on the CPU, and give freed memory
    back now and then."""
    global _pending
    _pending += nbytes
    if _pending >= EVERY:
        _pending = 0
        give_back()
