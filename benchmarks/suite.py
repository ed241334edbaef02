"""Measures a suite: for every point all schemes, all their candidates, cuBLAS and aten's int4 GEMM,
interleaved. bench_gemm.py is the command."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from operands import Call, Operands
from results import ATEN, CUBLAS, OURS, Row
from schemes import Scheme
from shapes import Point
from timing import Graph, Timer, Timing, time_interleaved

import mixed_gemm

ATEN_MAX_M = 512  # seconds per point beyond it, and 20 times behind
ATEN_SCHEME = Scheme(4, 128, None, "bfloat16")


@dataclass(frozen=True)
class Variant:
    """One kernel on one scheme: what a row of the results times."""

    op: str
    kernel: str
    scheme: Scheme


@dataclass(frozen=True)
class Choice:
    """Which configurations of a scheme to time.

    Attributes:
        most: predicted-best ones besides the tiles without a split; None for all.
        within: leave out those predicted to take more than this times the best.
        keep: how many of the fastest to write besides the selected one; None for all.
        device: as mixed_gemm.plan() takes it.
    """

    most: int | None = 6
    within: float = 2.0
    keep: int | None = 2
    device: str = "cuda"

    def candidates(self, scheme: Scheme, point: Point) -> tuple[str, list[str]]:
        """The configuration that plan() selects, and all to time."""
        n, k, m = point
        plan = mixed_gemm.plan(
            m,
            n,
            k,
            dtype=scheme.dtype,
            bits=scheme.bits,
            group_size=-1 if scheme.group_size is None else scheme.group_size,
            zero_mode=scheme.zero_mode,
            device=self.device,
        )
        predicted = {c.config: c.predicted_us or 0.0 for c in plan.candidates}
        limit = self.within * min(predicted.values())
        names = [name for name, us in predicted.items() if us <= limit]
        plain = [name for name in names if "_serial" not in name and "_parallel" not in name]
        return plan.selected, list(dict.fromkeys([plan.selected, *names[: self.most], *plain]))


def rows_of(
    point: Point,
    selected: dict[Scheme, str],
    timings: dict[Variant, Timing],
    ceilings: dict[str, float],
    keep: int | None,
) -> Iterator[Row]:
    """Rows as docs/speed.md describes them: of each scheme the selected configuration and the
    `keep` fastest."""
    n, k, m = point
    flops_us = 2e-6 * m * n * k / ceilings["dense_fp16_tflops"]
    rank: dict[Scheme, list[Variant]] = {}
    for variant in sorted(timings, key=lambda v: timings[v].us):
        if variant.op == OURS:
            rank.setdefault(variant.scheme, []).append(variant)
    for variant, t in timings.items():
        scheme = variant.scheme
        is_selected = variant.op == OURS and selected[scheme] == variant.kernel
        if variant.op == OURS and not is_selected and variant not in rank[scheme][:keep]:
            continue
        bytes_us = scheme.traffic_bytes(point) / (ceilings["read_gb_per_s"] * 1e3)
        yield {
            "op": variant.op,
            "kernel": variant.kernel,
            "selected": is_selected,
            "dtype": scheme.dtype,
            "bits": scheme.bits,
            "group_size": scheme.group_size,
            "zero_mode": scheme.zero_mode,
            "N": n,
            "K": k,
            "M": m,
            "us": round(t.us, 2),
            "us_min": round(t.us_min, 2),
            "us_max": round(t.us_max, 2),
            "roofline_us": round(max(bytes_us, flops_us), 2),
        }


class Budget:
    """Says when another point might not fit in `seconds` from now: the next may take twice as long
    as the longest so far, since M grows."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.start, self.seconds = clock, clock(), seconds
        self.longest, self.last = 0.0, self.start

    def has_room(self) -> bool:
        """Call it before each point."""
        now = self.clock()
        self.longest, self.last = max(self.longest, now - self.last), now
        return now - self.start + 2 * self.longest < self.seconds


MakeGraph = Callable[[Sequence[Call]], Timer]


def graphs_of_a_point() -> MakeGraph:
    """All graphs of a point share a memory pool: at large M the outputs of all of them would not
    fit."""
    torch.cuda.empty_cache()  # the pool of the point before
    pool = torch.cuda.graph_pool_handle()
    return lambda calls: Graph(calls, pool)


Selected = dict[Scheme, str]
Timings = dict[Variant, Timing]


@dataclass(frozen=True)
class Suite:
    """What to measure. `make_operands` and `new_pool` are others only where there is no GPU.

    settle_s: pause before each weight. The last points of the one before it are large enough to
        meet the GPU's power limit, and its clock takes a second to rise again: an H200 ran the
        first points of the next weight at 1470 MHz for 1980, 91 us for 71.
    """

    schemes: Sequence[Scheme]
    points: Sequence[Point]
    choice: Choice
    rounds: int
    settle_s: float = 0.0
    make_operands: Callable[[int, int], Operands] = Operands
    new_pool: Callable[[], MakeGraph] = graphs_of_a_point

    def run(
        self, budget: Budget, record: Callable[[Point, Selected, Timings], None]
    ) -> list[Point]:
        """Hands every point to `record` when it is done. Returns those the budget left out."""
        left = sorted(self.points)
        for (n, k), group in groupby(sorted(self.points), key=lambda p: p[:2]):
            operands = self.make_operands(n, k)
            time.sleep(self.settle_s)
            for point in group:
                if not budget.has_room():
                    return left
                record(point, *self.measure(operands, point[2]))
                left.remove(point)
            del operands  # before the next ones are made
        return left

    def measure(self, operands: Operands, m: int) -> tuple[Selected, Timings]:
        """The selected configuration of each scheme, and the time of every variant, of one M."""
        point = operands.n, operands.k, m
        schemes = [scheme for scheme in self.schemes if point in scheme.points()]
        graph = self.new_pool()
        selected: Selected = {}
        graphs: dict[Variant, Timer] = {}
        for scheme in schemes:
            selected[scheme], names = self.choice.candidates(scheme, point)
            for name in names:
                graphs[Variant(OURS, name, scheme)] = graph(operands.ours(scheme, m, name))
        contests = {variant: variant.scheme for variant in graphs}
        for dtype in dict.fromkeys(scheme.dtype for scheme in schemes):
            dense = Scheme(16, None, None, dtype)
            graphs[Variant(CUBLAS, CUBLAS, dense)] = graph(operands.cublas(dtype, m))
        if m <= ATEN_MAX_M and any((s.bits, s.group_size) == (4, 128) for s in schemes):
            graphs[Variant(ATEN, ATEN, ATEN_SCHEME)] = graph(operands.aten_int4(m))
        always = {Variant(OURS, name, scheme) for scheme, name in selected.items()}
        return selected, time_interleaved(graphs, self.rounds, contests, always)
