"""How long calls take on a GPU: CUDA graph replay, interleaved, median."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import torch

CLEARLY_BEHIND = 1.25  # of the best after the warm-up: not measured any further
# 50 us. An idle GPU waits for the CPU to launch the graph, 15 us behind the event that starts the
# clock; so it is kept busy meanwhile, and 3 to 6 us a replay remain.
BUSY_CYCLES = 100_000


def replay_us(graph: torch.cuda.CUDAGraph, calls: int) -> float:
    """Microseconds of one of the calls of a graph, which are alike."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.cuda._sleep(BUSY_CYCLES)  # type: ignore[no-untyped-call]
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3 / calls


class Replay:
    """A captured sequence of calls."""

    def __init__(self, calls: Sequence[Callable[[], object]]) -> None:
        self.calls = calls  # keeps their tensors alive
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            calls[0]()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream):
            for call in calls:
                call()

    def us(self) -> float:
        """Microseconds of one call."""
        return replay_us(self.graph, len(self.calls))


def median_us(named: dict[str, Sequence[Callable[[], object]]], rounds: int) -> dict[str, float]:
    """Microseconds of one call of each sequence. All are warmed up, then replayed in turn, so that
    drift of the clocks hits all alike; what is clearly behind drops out after the warm-up."""
    replays = {name: Replay(calls) for name, calls in named.items()}
    for replay in replays.values():
        replay.us()
    first = {name: replay.us() for name, replay in replays.items()}
    limit = CLEARLY_BEHIND * min(first.values())
    samples = {name: [us] for name, us in first.items()}
    for _ in range(rounds):
        for name, replay in replays.items():
            if first[name] <= limit:
                samples[name].append(replay.us())
    return {name: statistics.median(us) for name, us in samples.items()}
