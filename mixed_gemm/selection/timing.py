"""The time that calls take: the one timer of ``tune``, ``bench``, the demo and ``benchmarks/``.

A sample on a GPU is one replay of a CUDA graph of many calls, on the CPU one call. What is compared
takes turns, in a random order that changes each time, so that drift of the clocks, and what ran
before, hits all of them alike; the result is the median.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
import statistics
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch

Call = Callable[[], object]
Key = TypeVar("Key", bound=Hashable)

# Before that round, a call that is slower than this times the best of its contest has been measured
# well enough (the first number is against the sample that warms up).
CONTEST_ROUNDS = {0: 1.5, 2: 1.15}
MIN_ROUNDS = 3
# Cycles of an SM's clock, 50 us. An idle GPU waits for the CPU to launch the graph, 15 us behind
# the event that starts the clock; so it is kept busy meanwhile, and 3 to 6 us a replay remain.
BUSY_CYCLES = 100_000
# The 3 to 6 us shall be 1 % of a replay at most. With an idle GPU and each call once 57344 x 8192,
# a graph of 2 calls, took 76.7 us for 69.5 with one row, and 28672 x 4096, 6 calls, 22.7 for 20.4.
LEAST_REPLAY_US = 500.0


@dataclass(frozen=True)
class Timing:
    """Microseconds of one call: the median of the samples, and their extremes."""

    us: float
    us_min: float
    us_max: float


class Timer(Protocol):
    """Something that can be timed again and again.

    Attributes:
        calls_a_sample: how many calls one sample makes.
        most_ms: milliseconds that all samples may take together, if MIN_ROUNDS of them fit.
    """

    calls_a_sample: int
    most_ms: float

    def sample_us(self) -> float:
        """Return the microseconds of one call, from one sample."""


class Turns:
    """Calls on the CPU, one of them a sample, each the next one."""

    calls_a_sample = 1
    most_ms = math.inf  # every round counts: clocks and neighbours of a CPU vary more

    def __init__(self, calls: Sequence[Call]) -> None:
        self._next = itertools.cycle(calls)

    def sample_us(self) -> float:
        call = next(self._next)
        start = time.perf_counter()
        call()
        return (time.perf_counter() - start) * 1e6


@functools.cache
def _capture_stream(device: int) -> Any:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def rotations(replay_us: float) -> int:
    """Return how often a graph goes through its calls, which together take ``replay_us``."""
    return max(1, math.ceil(LEAST_REPLAY_US / max(replay_us, 1.0)))


class Graph:
    """A captured sequence of calls on the current CUDA device, as often as makes a replay long
    enough (LEAST_REPLAY_US). Graphs that are replayed one after the other, and whose outputs nobody
    reads, may share a memory pool."""

    most_ms = 60.0  # long kernels vary less, and need fewer samples

    def __init__(self, calls: Sequence[Call], pool: Any = None) -> None:
        stream = _capture_stream(torch.cuda.current_device())
        # First on the capture stream, outside of a capture: else cuBLAS's workspace for that stream
        # would lie in this graph's memory pool, and the next graph would use it after this one is
        # gone (seen: illegal address). cuDNN, too, tries its algorithms here.
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            calls[0]()
        torch.cuda.synchronize()
        self._capture(calls, pool)
        self.sample_us()  # the first one may be slow
        often = rotations(self.sample_us() * len(calls))
        if often > 1:
            self._capture([*calls] * often, pool)

    def _capture(self, calls: Sequence[Call], pool: Any) -> None:
        graph = torch.cuda.CUDAGraph()
        # Not torch.cuda.graph(): that empties the allocator's cache at each capture, a cudaFree for
        # every block, and a suite captures thousands.
        with torch.cuda.stream(_capture_stream(torch.cuda.current_device())):
            graph.capture_begin(*(() if pool is None else (pool,)))
            try:
                for call in calls:
                    call()
            finally:
                graph.capture_end()
        self._calls = calls  # keeps their tensors alive
        self._graph = graph  # the one before kept the pool
        self.calls_a_sample = len(calls)

    def sample_us(self) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda._sleep(BUSY_CYCLES)  # type: ignore[no-untyped-call]
        start.record()
        self._graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e3 / self.calls_a_sample


def timers_of(calls: Mapping[Key, Sequence[Call]], device: torch.device) -> dict[Key, Timer]:
    """Make a timer for each sequence of calls on ``device``, which are alike: one for each copy of
    a weight, say. The graphs share a memory pool: at large M the outputs of all of them would not
    fit."""
    if device.type != "cuda":
        return {key: Turns(alike) for key, alike in calls.items()}
    torch.cuda.empty_cache()  # the pool of those before
    with torch.cuda.device(device):
        pool = torch.cuda.graph_pool_handle()
        return {key: Graph(alike, pool) for key, alike in calls.items()}


def time_interleaved(
    timers: Mapping[Key, Timer],
    rounds: int,
    contests: Mapping[Key, Hashable] | None = None,
    always: Collection[Key] = (),
) -> dict[Key, Timing]:
    """Sample all timers once to warm up, then ``rounds`` times.

    Args:
        timers: what to time.
        rounds: at most; fewer for what takes long (Timer.most_ms).
        contests: key -> what it competes in. Those that are clearly behind the best of their
            contest (CONTEST_ROUNDS) are not timed to the end; each still gets a timing.
        always: those that are timed to the end anyway.
    """
    contests = contests or {}
    order = list(timers)
    latest = {key: timer.sample_us() for key, timer in timers.items()}

    def affordable(key: Key) -> int:
        sample_ms = latest[key] * timers[key].calls_a_sample * 1e-3
        return int(min(rounds, timers[key].most_ms / max(sample_ms, 1e-6)))

    wanted = {key: max(min(MIN_ROUNDS, rounds), affordable(key)) for key in order}
    samples: dict[Key, list[float]] = {key: [] for key in order}
    shuffle = random.Random().shuffle  # another order in each run: at the power limit it matters
    for done in range(rounds):
        if done in CONTEST_ROUNDS:
            for key in _behind(latest, contests, CONTEST_ROUNDS[done]):
                if key not in always:
                    wanted[key] = min(wanted[key], max(1, done))
        shuffle(order)
        for key in order:
            if wanted[key] > done:
                samples[key].append(timers[key].sample_us())
                latest[key] = statistics.median(samples[key])
    return {key: Timing(statistics.median(us), min(us), max(us)) for key, us in samples.items()}


def _behind(us: Mapping[Key, float], contests: Mapping[Key, Hashable], factor: float) -> list[Key]:
    best: dict[Hashable, float] = {}
    for key, contest in contests.items():
        best[contest] = min(us[key], best.get(contest, us[key]))
    return [key for key, contest in contests.items() if us[key] > factor * best[contest]]


def host_us(call: Call, device: torch.device, count: int = 2000) -> float:
    """Return the microseconds that the host takes to issue ``call``, the mean of ``count`` calls in
    a row. That is what an eager call costs where the GPU is done sooner; on the CPU, all of it."""

    def drained() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    start = drained()
    for _ in range(count):
        call()
    spent = time.perf_counter() - start
    drained()
    return spent / count * 1e6
