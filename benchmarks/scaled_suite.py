"""Measures the W8A8 ops: for every point the configurations of scaled_mm and what it is compared
with, interleaved. bench_scaled_mm.py is the command."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch
from scaled_operands import ScaledOperands
from scaled_results import CUBLAS, OURS, QUANTIZERS, Row, Variant
from shapes import Point
from suite import Budget, MakeGraph, graphs_of_a_point
from timing import Timer, Timing, time_interleaved

import mixed_gemm

BYTES = {"int8": 1, "float8_e4m3fn": 1, "float16": 2, "bfloat16": 2, "int32": 4}


@dataclass(frozen=True)
class Choice:
    """Which configurations to time.

    Attributes:
        most: predicted-best ones; None for all.
        within: leave out those predicted to take more than this times the best.
        device: as mixed_gemm.plan() takes it.
    """

    most: int | None
    within: float
    device: str = "cuda"

    def candidates(self, point: Point) -> list[str]:
        """The selected one is the first."""
        n, k, m = point
        plan = mixed_gemm.plan(m, n, k, dtype=torch.int8, device=self.device)
        predicted = {c.config: c.predicted_us or 0.0 for c in plan.candidates}
        limit = self.within * min(predicted.values())
        names = [name for name, us in predicted.items() if us <= limit]
        return list(dict.fromkeys([plan.selected, *names[: self.most]]))


@dataclass(frozen=True)
class ScaledSuite:
    """What to measure. `make_operands` and `new_pool` are others only where there is no GPU."""

    points: Sequence[Point]
    choice: Choice
    others: Sequence[Variant]
    rounds: int
    make_operands: Callable[[int, int], ScaledOperands] = ScaledOperands
    new_pool: Callable[[], MakeGraph] = graphs_of_a_point

    def run(
        self, budget: Budget, record: Callable[[Point, str, Mapping[Variant, Timing]], None]
    ) -> list[Point]:
        """Hands every point, its selected configuration and its times to `record` when it is done.
        Returns the points that the budget left out."""
        left = sorted(self.points)
        for (n, k), group in groupby(sorted(self.points), key=lambda p: p[:2]):
            operands = self.make_operands(n, k)
            for point in group:
                if not budget.has_room():
                    return left
                names = self.choice.candidates(point)
                record(point, names[0], self.measure(operands, point[2], names))
                left.remove(point)
            del operands  # before the next ones are made
        return left

    def measure(
        self, operands: ScaledOperands, m: int, names: Sequence[str]
    ) -> dict[Variant, Timing]:
        """The time of every configuration of ours, and of the others, at one M."""
        graph = self.new_pool()
        graphs: dict[Variant, Timer] = {
            replace(OURS, kernel=name): graph(operands.ours_int8(m, name)) for name in names
        }
        contests = dict.fromkeys(graphs, "int8")
        for variant in self.others:
            graphs[variant] = graph(operands.calls(variant, m))
        always = {replace(OURS, kernel=names[0])}
        return time_interleaved(graphs, self.rounds, contests, always)


def traffic_bytes(variant: Variant, point: Point) -> int:
    """What must cross the memory bus once: the operands and the output."""
    n, k, m = point
    operand = BYTES[variant.operand]
    if variant in QUANTIZERS:
        return m * k * (operand + BYTES[variant.out_dtype])
    weight = operand if variant == CUBLAS else 1
    return n * k * weight + m * k * operand + m * n * BYTES[variant.out_dtype]


def roofline_us(variant: Variant, point: Point, ceilings: Mapping[str, float]) -> float:
    n, k, m = point
    dense = ceilings["dense_fp16_tflops" if variant == CUBLAS else "dense_int8_tops"]
    bytes_us = traffic_bytes(variant, point) / (ceilings["read_gb_per_s"] * 1e3)
    return max(bytes_us, 2e-6 * m * n * k / dense)


def rows_of(
    point: Point,
    selected: str,
    timings: Mapping[Variant, Timing],
    ceilings: Mapping[str, float],
) -> Iterator[Row]:
    n, k, m = point
    for variant, t in timings.items():
        yield {
            "op": variant.op,
            "kernel": variant.kernel,
            "selected": bool(variant.kernel) and variant.kernel == selected,
            "operand": variant.operand,
            "out_dtype": variant.out_dtype,
            "N": n,
            "K": k,
            "M": m,
            "us": round(t.us, 2),
            "us_min": round(t.us_min, 2),
            "us_max": round(t.us_max, 2),
            "roofline_us": round(roofline_us(variant, point, ceilings), 2),
        }
