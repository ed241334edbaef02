"""The time of the GPU in a decode step, from a trace of torch's profiler."""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

STEP_MARK = "reshape_and_cache"  # the name of a kernel that runs once a layer and step
LISTED, NAME_LENGTH = 12, 120


def newest(folder: Path) -> list[dict[str, Any]]:
    """Kernels of the latest trace in a folder; with several ranks, of one of them.

    Raises:
        FileNotFoundError: there is none.
    """
    files = sorted(folder.rglob("*.json*"), key=lambda x: x.stat().st_mtime)
    if not files:
        raise FileNotFoundError(f"no trace in {folder}")
    data = files[-1].read_bytes()
    text = gzip.decompress(data) if files[-1].suffix == ".gz" else data
    return [x for x in json.loads(text)["traceEvents"] if x.get("cat") == "kernel"]


def covered_us(kernels: list[dict[str, Any]]) -> float:
    """Microseconds in which at least one kernel runs."""
    total, end = 0.0, -math.inf
    for x in sorted(kernels, key=lambda x: x["ts"]):
        until = x["ts"] + x["dur"]
        total += max(0.0, until - max(end, x["ts"]))
        end = max(end, until)
    return total


def gpu_time(kernels: list[dict[str, Any]], layers: int, window_us: float) -> dict[str, Any]:
    """Microseconds in which the GPU runs a kernel of a step, on average over the last ``window_us``
    of a trace, and the kernels that take the most: (name, how often in a step, microseconds).

    With programmatic dependent launch a kernel waits inside of its own time for the one before it,
    so times of kernels may overlap, and their sum may be more than the step.

    Raises:
        ValueError: no step of the model lies there.
    """
    last = max((x["ts"] + x["dur"] for x in kernels), default=0)
    late = [x for x in kernels if x["ts"] > last - window_us]
    steps = sum(STEP_MARK in x["name"] for x in late) / layers
    if steps == 0:
        raise ValueError(f"no kernel of {STEP_MARK} among {len(late)} in the last {window_us} us")
    took: Counter[str] = Counter()
    often: Counter[str] = Counter()
    for x in late:
        took[x["name"][:NAME_LENGTH]] += x["dur"]
        often[x["name"][:NAME_LENGTH]] += 1
    return {
        "gpu_us": round(covered_us(late) / steps),
        "longest": [
            [name, round(often[name] / steps, 1), round(us / steps, 1)]
            for name, us in took.most_common(LISTED)
        ],
    }
