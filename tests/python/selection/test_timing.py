"""The timer, on samples that are given: the median, who drops out, how many samples are taken."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from support.bench_rows import FakeTimer

from mixed_gemm.selection.operands import CPU_BYTES, copies_for
from mixed_gemm.selection.timing import (
    LEAST_REPLAY_US,
    Turns,
    rotations,
    time_interleaved,
    timers_of,
)

CPU = torch.device("cpu")


def test_timing_is_the_median_without_the_warm_up() -> None:
    timing = time_interleaved({"a": FakeTimer(99.0, 5.0, 1.0, 3.0)}, rounds=3)["a"]
    assert (timing.us, timing.us_min, timing.us_max) == (3.0, 1.0, 5.0)


def test_timing_stops_sampling_what_is_clearly_behind() -> None:
    timers = {
        "best": FakeTimer(10.0),
        "hopeless": FakeTimer(16.0),
        "behind": FakeTimer(12.0),
        "selected": FakeTimer(30.0),
        "cublas": FakeTimer(100.0),
    }
    contests = dict.fromkeys(("best", "hopeless", "behind", "selected"), "scheme")
    timings = time_interleaved(timers, 7, contests, {"selected"})
    assert {name: timer.samples - 1 for name, timer in timers.items()} == {
        "best": 7,
        "hopeless": 1,
        "behind": 2,
        "selected": 7,
        "cublas": 7,
    }
    assert timings["hopeless"].us == 16.0


def test_timing_gives_long_kernels_fewer_rounds() -> None:
    timers = {"long": FakeTimer(20e3, calls=2), "longer": FakeTimer(6e3, calls=2)}
    time_interleaved(timers, 7)
    assert {name: t.samples - 1 for name, t in timers.items()} == {"long": 3, "longer": 5}
    patient = FakeTimer(1e6)
    patient.most_ms = math.inf
    time_interleaved({"cpu": patient}, 7)
    assert patient.samples - 1 == 7, "every round counts where there is no limit"


def test_short_graphs_go_through_their_calls_more_often() -> None:
    assert rotations(LEAST_REPLAY_US) == rotations(20e3) == 1
    for replay_us in (0.0, 3.0, 140.0, LEAST_REPLAY_US - 1):
        assert rotations(replay_us) * max(replay_us, 1.0) >= LEAST_REPLAY_US


def test_turns_make_the_next_call_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0, 2)  # every look at it: two seconds later
    monkeypatch.setattr("mixed_gemm.selection.timing.time.perf_counter", lambda: next(clock))
    made: list[str] = []
    timer = Turns([lambda: made.append("first"), lambda: made.append("second")])
    assert [timer.sample_us() for _ in range(3)] == [2e6] * 3
    assert made == ["first", "second", "first"]


def test_timers_on_the_cpu_call_everything_in_turns() -> None:
    made: list[str] = []
    calls = {name: [lambda name=name: made.append(name)] for name in "ab"}  # type: ignore[misc]
    times = time_interleaved(timers_of(calls, CPU), 3)
    assert made[:2] == ["a", "b"], "the warm-up"
    assert sorted(made) == ["a"] * 4 + ["b"] * 4
    assert all(0 < t.us_min <= t.us <= t.us_max for t in times.values())


def test_copies_exceed_the_caches_up_to_a_limit() -> None:
    assert copies_for(CPU_BYTES, CPU) == 2
    assert copies_for(CPU_BYTES // 10, CPU) == 11
    assert copies_for(1, CPU) == 64
