"""benchmarks/bench_awq.py without a GPU: the operands, the rows, the join with the peer and the
targets."""

from __future__ import annotations

import itertools
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import bench_awq
from bench_awq import AWQ, OURS, TRITON
from results import save
from suite import Budget

CEILINGS = {"read_gb_per_s": 4000.0, "dense_fp16_tflops": 750.0}
POINT = (4096, 4096, 16)  # peers_h200.csv: 25.6 us


def test_points_are_those_of_the_peer() -> None:
    peer = bench_awq.triton_us()
    assert len(peer) == 54 and peer[POINT] == 25.6
    assert {m for _, _, m in peer} == {1, 2, 4, 8, 16, 32, 64, 128, 1024}


def test_operands_are_the_same_weights_for_both_ops() -> None:
    operands = bench_awq.AwqOperands(64, 256, "cpu")
    calls = operands.calls(3)
    assert len(calls[AWQ]) == len(calls[OURS]) == 64
    results: dict[str, list[Any]] = {op: [call() for call in calls[op]] for op in calls}
    for awq, native in zip(results[AWQ], results[OURS], strict=True):
        torch.testing.assert_close(awq, native, rtol=2e-3, atol=2e-2)
    assert len({tuple(x.flatten().tolist()) for x in results[AWQ]}) == 64, "all differ"


class FakeGraph:
    calls_a_sample, most_ms = 1, math.inf

    def __init__(self, calls: list[float]) -> None:
        self.us = calls[0]

    def sample_us(self) -> float:
        return self.us


class FakeOperands:
    def __init__(self, n: int, k: int, device: str) -> None:
        pass

    def calls(self, m: int) -> dict[str, list[float]]:
        return {AWQ: [10.0], OURS: [8.0]}


def test_measure_gives_rows_of_the_results_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_awq, "AwqOperands", FakeOperands)
    rows: list[dict[str, Any]] = []
    points = [POINT, (4096, 4096, 64)]
    device = "cuda:sm=90,sms=132,smem=232448"
    run = (CEILINGS, rows.extend)
    left = bench_awq.measure(points, 3, *run, Budget(1e9), device, lambda: FakeGraph)
    assert left == [] and len(rows) == 4
    fields = {"op", "kernel", "selected", "dtype", "bits", "group_size", "zero_mode", "N", "K", "M"}
    fields |= {"us", "us_min", "us_max", "roofline_us"}
    assert all(set(r) == fields for r in rows)
    times = bench_awq.times_of(rows)
    assert times[POINT] == {AWQ: 10.0, OURS: 8.0, TRITON: 25.6}
    weights, scales, zeros = 4096 * 4096 / 2, 2 * 32 * 4096, 32 * 4096 / 2
    roofline = (weights + scales + zeros + 4 * 16 * 4096) / 4e6
    assert rows[0]["roofline_us"] == round(roofline, 2)
    clock = itertools.count(0, 10)
    budget = Budget(35, lambda: next(clock))
    left = bench_awq.measure(points, 3, *run, budget, device, lambda: FakeGraph)
    assert left == [points[1]]


def file_of(tmp_path: Path, awq: float, native: float, m: int = 16) -> Path:
    common = {"N": 4096, "K": 4096, "M": m}
    rows = [{"op": AWQ, "us": awq, **common}, {"op": OURS, "us": native, **common}]
    save(tmp_path / "awq.json", {}, rows)
    return tmp_path / "awq.json"


@pytest.mark.parametrize(
    ("awq", "native", "m", "missed"),
    [
        (8.5, 7.0, 16, []),
        (8.6, 7.0, 16, [0]),  # 25.6 / 8.6 = 2.98
        (8.5, 6.5, 16, [2]),  # 1.31
        (30.0, 6.0, 16, [0, 1, 2]),
        (14.0, 6.0, 64, []),  # no bound by fpA_intB_gemm above 16
        (70.0, 6.0, 128, []),  # 80.2: faster is enough above 64
        (81.0, 6.0, 128, [1]),
    ],
)
def test_check_says_which_target_is_missed(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    awq: float,
    native: float,
    m: int,
    missed: list[int],
) -> None:
    path = file_of(tmp_path, awq, native, m)
    assert bench_awq.check(path) == bool(missed)
    *table, _ = text = capsys.readouterr().out.splitlines()
    assert f"| 4096 x 4096 | {m} | {awq:.1f} | {native:.1f} |" in "\n".join(table)
    lines = text[-len(bench_awq.TARGETS) :]
    assert [i for i, line in enumerate(lines) if "; not at 4096x4096@" in line] == missed
    times = bench_awq.times_of(json.loads(path.read_text())["rows"])
    assert [i for i, t in enumerate(bench_awq.TARGETS) if t.misses(times)] == missed
