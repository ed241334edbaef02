"""Rows of results files with chosen times, and timers that read off what they are given."""

from __future__ import annotations

import itertools
from dataclasses import asdict
from typing import Any

from benchmarks.row import Point, Row
from benchmarks.schemes import MAIN, Scheme
from benchmarks.timed import DENSE, GEMM, Timed

CEILINGS = {
    "copy_gb_per_s": 4000.0,
    "read_gb_per_s": 4000.0,
    "dense_fp16_tflops": 750.0,
    "dense_int8_tops": 1500.0,
}
META = {"gpu": "test", "torch": "2", "cuda": "13", "ceilings": CEILINGS}
# In peers_h200.csv the best peer takes 5.7 us (TensorRT-LLM): of the limit of 0.9 of it 5.13 are
# left. In peers_w8a8_h200.csv torch._int_mm takes 11.7.
SMALL = Point(4096, 4096, 1)
LARGE = Point(4096, 4096, 256)
H200 = "cuda:sm=90,sms=132,smem=232448"  # as mixed_gemm.plan() takes it


def row(us: float, kernel: str = "a", selected: bool = True, **other: Any) -> Row:
    """A row of fpA_intB_gemm in the main scheme at SMALL, where nothing else is said."""
    point, scheme = other.pop("point", SMALL), other.pop("scheme", MAIN)
    times = {"us": us, "us_min": us, "us_max": us, "roofline_us": 2.0}
    op = other.pop("op", GEMM)
    return Row(op, kernel, selected, **times, **point.fields(), **asdict(scheme))


def row_of(timed: Timed, us: float, point: Point = SMALL, **other: Any) -> Row:
    """A row of an op without configurations, or of the configuration that ran."""
    scheme = timed.scheme or MAIN
    return row(us, other.pop("kernel", ""), op=timed.op, scheme=scheme, point=point, **other)


def dense_row(us: float, point: Point, dtype: str = "float16") -> Row:
    return row(us, "", False, op=DENSE, point=point, scheme=Scheme.dense(dtype))


class FakeTimer:
    """A sample takes the next of the times it was given, the last one for ever."""

    most_ms = 60.0

    def __init__(self, *us: float, calls: int = 1) -> None:
        self.calls_a_sample = calls
        self.samples = 0
        self._us = itertools.chain(us, itertools.repeat(us[-1]))

    def sample_us(self) -> float:
        self.samples += 1
        return next(self._us)
