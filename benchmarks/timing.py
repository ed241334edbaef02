"""GPU timing: CUDA graph replay over rotated weight copies, interleaved rounds, median, spread."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

ROTATE_BYTES = (
    300e6  # more than the L2 of any GPU: every replayed call finds its weight in device memory
)


@dataclass(frozen=True)
class Timing:
    us: float
    us_min: float
    us_max: float


def copies_for(weight_bytes: int, most: int = 64) -> int:
    """Copies of a weight that together exceed ROTATE_BYTES, at least 2."""
    return max(2, min(most, int(ROTATE_BYTES // max(weight_bytes, 1)) + 1))


@functools.cache
def _capture_stream() -> torch.cuda.Stream:
    return torch.cuda.Stream()


class Graph:
    """A captured sequence of calls, one for each copy of the weight. Graphs that are replayed one
    after the other, and whose outputs nobody reads, may share a memory pool."""

    def __init__(self, calls: Sequence[Callable[[], object]], pool: object | None = None) -> None:
        self.calls = calls  # keeps their tensors alive
        stream = _capture_stream()
        # First on the capture stream, outside of a capture: else cuBLAS's workspace for that stream
        # would lie in this graph's memory pool, and the next graph would use it after this one is
        # gone (seen: illegal address).
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            calls[0]()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool, stream=stream):
            for call in calls:
                call()
        self.graph.replay()
        torch.cuda.synchronize()

    def replay_us(self) -> float:
        """Microseconds of one call."""
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        self.graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e3 / len(self.calls)


def time_interleaved(graphs: dict[str, Graph], rounds: int) -> dict[str, Timing]:
    """Replays all graphs in turn, `rounds` times, so that drift of the clocks hits all of them."""
    samples: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(rounds):
        for name, graph in graphs.items():
            samples[name].append(graph.replay_us())
    return {name: Timing(statistics.median(us), min(us), max(us)) for name, us in samples.items()}


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
