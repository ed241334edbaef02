"""How many calls code of this library makes, which unlike its time is the same on every machine."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable
from typing import Any

from mixed_gemm import _library

FOLDER = str(_library.__file__).rpartition("/")[0]


def calls(run: Callable[[], Any]) -> int:
    """Count what the functions of mixed_gemm call: functions of Python, methods and builtins."""
    profile = cProfile.Profile()
    profile.runcall(run)
    stats: Any = pstats.Stats(profile)
    return sum(
        count[0]
        for *_, callers in stats.stats.values()
        for (file, _, _), count in callers.items()
        if file.startswith(FOLDER)
    )


def growth(counts: list[int]) -> float:
    """How much more the last of equal steps costs than the one before, as a ratio: 0 of what is
    linear.

    Args:
        counts: of calls, of models of n, 2n and 3n layers.
    """
    one, two, three = counts
    return (three - two) / (two - one) - 1
