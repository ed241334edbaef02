"""The arithmetic of times: medians, how far samples lie apart, and percentiles."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass


@dataclass(frozen=True)
class Sampled:
    """The median and spread of samples. spread: the largest less the least."""

    median: float
    spread: float

    @classmethod
    def of(cls, values: list[float]) -> Sampled:
        return cls(statistics.median(values), max(values) - min(values))


def decode_step(whole: list[float], prompts: list[float], steps: int) -> Sampled:
    """Seconds of a step: runs that read prompts and decode ``steps`` tokens behind the first, less
    the median of those that end with the first token."""
    start = statistics.median(prompts)
    return Sampled.of([(x - start) / steps for x in whole])


def percentile(values: list[float], part: float) -> float:
    """The least value that a part (0 to 1) of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]
