"""GPU timing: CUDA graph replay over rotated weight copies, interleaved rounds, median, spread."""

from __future__ import annotations

import functools
import math
import random
import statistics
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch

from mixed_gemm.selection import timing

ROTATE_BYTES = (
    300e6  # more than the L2 of any GPU: every replayed call finds its weight in device memory
)
# Before that round, what is slower than this times the best of its contest has been measured well
# enough (the first number is against the warm-up replay).
CONTEST_ROUNDS = {0: 1.5, 2: 1.15}
REPLAYS_MS = 60.0  # of one graph, all rounds together: long kernels vary less, and need fewer
MIN_ROUNDS = 3
# What a replay takes beside its calls (mixed_gemm/selection/timing.py) shall be 1 % at most. With
# an idle GPU and each call once 57344 x 8192, a graph of 2 calls, took 76.7 us for 69.5 with one
# row, and 28672 x 4096, 6 calls, 22.7 for 20.4.
LEAST_REPLAY_US = 500.0

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Timing:
    us: float
    us_min: float
    us_max: float


class Replayable(Protocol):
    calls: Sequence[Callable[[], object]]

    def replay_us(self) -> float: ...


def copies_for(weight_bytes: int, most: int = 64) -> int:
    """Copies of a weight that together exceed ROTATE_BYTES, at least 2."""
    return max(2, min(most, int(ROTATE_BYTES // max(weight_bytes, 1)) + 1))


@functools.cache
def _capture_stream() -> torch.cuda.Stream:
    return torch.cuda.Stream()


def rotations(replay_us: float) -> int:
    """How often a graph goes through its calls, which together take `replay_us`."""
    return max(1, math.ceil(LEAST_REPLAY_US / max(replay_us, 1.0)))


class Graph:
    """A captured sequence of calls, one for each copy of the weight, as often as makes the replay
    long enough (LEAST_REPLAY_US). Graphs that are replayed one after the other, and whose outputs
    nobody reads, may share a memory pool."""

    def __init__(self, calls: Sequence[Callable[[], object]], pool: object | None = None) -> None:
        stream = _capture_stream()
        # First on the capture stream, outside of a capture: else cuBLAS's workspace for that stream
        # would lie in this graph's memory pool, and the next graph would use it after this one is
        # gone (seen: illegal address).
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            calls[0]()
        torch.cuda.synchronize()
        self._capture(calls, pool)
        self.replay_us()  # the first one may be slow
        often = rotations(self.replay_us() * len(calls))
        if often > 1:
            self._capture([*calls] * often, pool)

    def _capture(self, calls: Sequence[Callable[[], object]], pool: object | None) -> None:
        graph = torch.cuda.CUDAGraph()
        # Not torch.cuda.graph(): that empties the allocator's cache at each capture, a cudaFree for
        # every block, and a suite captures thousands.
        with torch.cuda.stream(_capture_stream()):
            graph.capture_begin(*(() if pool is None else (pool,)))
            try:
                for call in calls:
                    call()
            finally:
                graph.capture_end()
        self.calls = calls  # keeps their tensors alive
        self.graph = graph  # the one before kept the pool

    def replay_us(self) -> float:
        """Microseconds of one call."""
        return timing.replay_us(self.graph, len(self.calls))


def time_interleaved(
    graphs: Mapping[Key, Replayable],
    rounds: int,
    contests: Mapping[Key, Hashable] | None = None,
    always: Collection[Key] = (),
) -> dict[Key, Timing]:
    """Replays all graphs once to warm up, then `rounds` times in a random order that changes each
    time, so that drift of the clocks, and what ran before, hits all of them alike.

    Args:
        graphs: what to time.
        rounds: at most; fewer for graphs that run for long (REPLAYS_MS).
        contests: graph -> what it competes in. Those that are clearly behind the best of their
            contest (CONTEST_ROUNDS) are not replayed to the end; each still gets a timing.
        always: those that are replayed to the end anyway.
    """
    contests = contests or {}
    order = list(graphs)
    latest = {key: graph.replay_us() for key, graph in graphs.items()}
    wanted = {
        key: max(min(MIN_ROUNDS, rounds), min(rounds, int(REPLAYS_MS * 1e3 / max(us, 1e-3))))
        for key, us in ((key, latest[key] * len(graphs[key].calls)) for key in order)
    }
    samples: dict[Key, list[float]] = {key: [] for key in graphs}
    shuffle = random.Random().shuffle  # another order in each run: at the power limit it matters
    for done in range(rounds):
        if done in CONTEST_ROUNDS:
            for key in _behind(latest, contests, CONTEST_ROUNDS[done]):
                if key not in always:
                    wanted[key] = min(wanted[key], max(1, done))
        shuffle(order)
        for key in order:
            if wanted[key] > done:
                samples[key].append(graphs[key].replay_us())
                latest[key] = statistics.median(samples[key])
    return {key: Timing(statistics.median(us), min(us), max(us)) for key, us in samples.items()}


def _behind(us: Mapping[Key, float], contests: Mapping[Key, Hashable], factor: float) -> list[Key]:
    best: dict[Hashable, float] = {}
    for key, contest in contests.items():
        best[contest] = min(us[key], best.get(contest, us[key]))
    return [key for key, contest in contests.items() if us[key] > factor * best[contest]]


def measured_ceilings() -> dict[str, float]:
    """What this GPU reaches now: device-to-device copy (read + write), a pure read, dense fp16."""
    source = torch.randn(1 << 30, device="cuda", dtype=torch.float16)
    target = torch.empty_like(source)
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.float16)
    graphs = {
        "copy": Graph([lambda: target.copy_(source)] * 4),
        "read": Graph([lambda: torch.sum(source, dtype=torch.float32)] * 4),
        "dense": Graph([lambda: a @ a] * 8),
    }
    us = {name: t.us for name, t in time_interleaved(graphs, 7).items()}
    bytes_ = source.numel() * 2
    return {
        "copy_gb_per_s": round(2e-3 * bytes_ / us["copy"], 1),
        "read_gb_per_s": round(1e-3 * bytes_ / us["read"], 1),
        "dense_fp16_tflops": round(2e-6 * 8192**3 / us["dense"], 1),
    }
