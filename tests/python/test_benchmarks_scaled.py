"""bench_scaled_mm.py without a GPU: what is timed, the targets, the rooflines."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import bench_scaled_mm as bench
import report
import report_scaled
import scaled_targets as targets
from results import save
from scaled_operands import ScaledOperands, quantizer_calls
from scaled_results import (
    AZP,
    CUBLAS,
    FP8_BF16,
    INT_MM,
    INT_MM_SCALED,
    OURS,
    QUANTIZE,
    QUANTIZERS,
    TORCH_FP8,
    ScaledResults,
    Variant,
)
from scaled_suite import Choice, ScaledSuite, roofline_us, rows_of, traffic_bytes
from suite import Budget
from timing import Timing

import mixed_gemm

CEILINGS = {"read_gb_per_s": 4000.0, "dense_fp16_tflops": 750.0, "dense_int8_tops": 1500.0}
PLAN_ON = "cuda:sm=90,sms=132,smem=232448"
SMALL, LARGE = (4096, 4096, 1), (4096, 4096, 256)


def results(times: dict[Variant, dict[tuple[int, int, int], float]]) -> ScaledResults:
    rows: list[dict[str, Any]] = []
    for variant, by_point in times.items():
        timed = replace(variant, kernel="a") if variant == OURS else variant
        for point, us in by_point.items():
            rows += rows_of(point, "a", {timed: Timing(us, us, us)}, CEILINGS)
    return ScaledResults({}, rows)


def test_points_are_those_of_the_peer_timings() -> None:
    points = bench.selected_points(None, None)
    assert len(points) == 36 and {m for _, _, m in points} >= {1, 16, 256, 4096}
    assert bench.selected_points("4096:4096", "1,256") == [SMALL, LARGE]


def test_targets_are_those_of_the_issue() -> None:
    found = results({
        OURS: {SMALL: 10.5, LARGE: 17.0},
        INT_MM: {SMALL: 10.0, LARGE: 16.0},
        INT_MM_SCALED: {SMALL: 11.0, LARGE: 20.0},
        AZP: {SMALL: 10.5, LARGE: 18.0},
    })  # fmt: skip
    text = "\n".join(targets.summary(found))
    assert "scaled_mm / _int_mm: 1.06 (1.06), 1 of 2 within 1.05\n    4096x4096@256 1.062" in text
    assert "M >= 256: 0.85 (0.85), 0 of 1 within 0.80" in text, "M = 1 has no such target"
    assert "scaled_mm_azp / scaled_mm: 1.03 (1.06), 1 of 2 within 1.05" in text
    assert "per token" not in text, "not measured"
    assert "_int_mm of the peer timings: 0.9" in text


def test_regret_is_against_the_best_measured_configuration() -> None:
    rows = [
        row
        for name, us in (("a", 6.0), ("b", 5.0))
        for row in rows_of(SMALL, "a", {replace(OURS, kernel=name): Timing(us, us, us)}, CEILINGS)
    ]
    found = ScaledResults({}, rows)
    assert targets.regrets(found) == {SMALL: (1.2, "b")}
    assert found.times[OURS] == {SMALL: 6.0} and found.names == {SMALL: "a"}
    assert "selected / best measured: 1.20 (1.20), beyond 1.05 at 1 of 1" in "\n".join(
        targets.summary(found)
    )


def test_results_file_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "scaled.json"
    rows = list(rows_of(SMALL, "", {INT_MM: Timing(5.0, 4.0, 6.0)}, CEILINGS))
    save(path, {"gpu": "test"}, rows)
    assert ScaledResults.load(path).times == {INT_MM: {SMALL: 5.0}}


def test_rooflines() -> None:
    n, k, m = LARGE
    assert traffic_bytes(OURS, LARGE) == n * k + m * k + 2 * m * n
    assert traffic_bytes(CUBLAS, LARGE) == 2 * (n * k + m * k + m * n)
    assert traffic_bytes(INT_MM, LARGE) == n * k + m * k + 4 * m * n
    assert traffic_bytes(QUANTIZE, (0, k, m)) == targets.QUANTIZED_BYTES * m * k
    assert roofline_us(OURS, SMALL, CEILINGS) == pytest.approx(n * k / 4e6, rel=1e-2)
    huge = 8192, 8192, 8192
    assert roofline_us(OURS, huge, CEILINGS) == pytest.approx(2e-6 * 8192**3 / 1500)


def test_quantizer_bandwidth() -> None:
    found = results({QUANTIZE: {(0, 4096, 1000): 6.144}})
    assert targets.quantizer_gb_per_s(found, QUANTIZE) == {(4096, 1000): pytest.approx(2e3, 1e-2)}


def test_choice_has_the_selected_one_first() -> None:
    names = Choice(3, 2.0, PLAN_ON).candidates(SMALL)
    plan = mixed_gemm.plan(1, 4096, 4096, dtype=torch.int8, device=PLAN_ON)
    assert names[0] == plan.selected and len(names) <= 4
    everything = Choice(None, float("inf"), PLAN_ON).candidates(SMALL)
    assert everything[0] == plan.selected
    assert set(everything) == {c.config for c in plan.candidates}


def test_report_replaces_only_its_part_and_is_idempotent() -> None:
    found = results({
        OURS: {SMALL: 10.0, LARGE: 17.0},
        INT_MM: {SMALL: 10.0, LARGE: 16.0},
        INT_MM_SCALED: {SMALL: 20.0, LARGE: 34.0},
        QUANTIZE: {(0, 4096, 1000): 6.144},
    })  # fmt: skip
    found.meta.update(gpu="test", torch="2", cuda="13", ceilings={"copy_gb_per_s": 4000.0})
    text = report_scaled.text_of(found, "results.json")
    readme = f"before\n{report_scaled.BEGIN}\nold\n{report_scaled.END}\nafter\n"
    markers = (report_scaled.BEGIN, report_scaled.END)
    once = report.replaced(readme, text, *markers)
    assert report.replaced(once, text, *markers) == once
    assert once.startswith("before\n") and once.endswith("\nafter\n") and "old" not in once
    assert "| 4096 x 4096 | 10.0 (1.00, 0.50, -) |" in once
    assert "| scaled_mm / _int_mm | 1.05 | 1.03 (1.06) | 1 of 2 |" in once
    assert "1000 x 4096 fp16: 2001 GB/s" in once
    real = report.PAGE.read_text()
    assert text in report.replaced(real, text, *markers), "the page has the markers"


VARIANTS = (*bench.OTHERS, *bench.FP8_ON_HOPPER)


@pytest.mark.parametrize("m", (1, 40))
def test_calls_compute_what_they_say(m: int) -> None:
    """On the CPU, where _int_mm and _scaled_mm are too; each copy of the weight its own result."""
    n, k = 64, 128
    operands = ScaledOperands(n, k, "cpu")
    outs: dict[Variant, list[torch.Tensor]] = {
        v: [call() for call in operands.calls(v, m)[:2]]  # type: ignore[misc]
        for v in VARIANTS
    }
    for variant, (first, second) in outs.items():
        assert not torch.equal(first, second), variant
        assert first.dtype == getattr(torch, variant.out_dtype)
        assert first.shape == ((max(m, 32) if variant == INT_MM else m), n)
    scaled = outs[INT_MM_SCALED][0].float()
    direct = mixed_gemm.scaled_mm(
        operands._rows(m), operands._int8()[0].t(), operands._row_scales(m),
        operands._column_scales(), out_dtype=torch.float16,
    )  # fmt: skip
    if m >= 32:  # else the padded activations are others
        assert torch.allclose(direct.float(), scaled, rtol=2e-3, atol=1e-6)
    a, b = outs[FP8_BF16][0].float(), outs[TORCH_FP8][0].float()
    assert torch.allclose(a, b, rtol=0.02, atol=0.02 * b.abs().max())


@pytest.mark.parametrize("variant", QUANTIZERS)
def test_quantizer_calls(variant: Variant) -> None:
    calls = quantizer_calls(variant, 32, 3, "cpu")
    assert len(calls) == 64
    out: Any = calls[0]()
    assert (out if isinstance(out, torch.Tensor) else out[0]).dtype == torch.int8


class FakeOperands:
    def __init__(self, n: int, k: int) -> None:
        self.n, self.k = n, k

    def ours_int8(self, m: int, config: str) -> list[float]:
        return [10.0]

    def calls(self, variant: Variant, m: int) -> list[float]:
        return [20.0]


class FakeGraph:
    calls_a_sample, most_ms = 1, math.inf

    def __init__(self, calls: Sequence[float]) -> None:
        self.us = calls[0]

    def sample_us(self) -> float:
        return self.us


def test_suite_measures_every_variant_of_every_point() -> None:
    rows: list[dict[str, Any]] = []
    points = [SMALL, LARGE, (8192, 8192, 16)]
    suite = ScaledSuite(
        points,
        Choice(2, 2.0, PLAN_ON),
        VARIANTS,
        3,
        FakeOperands,  # type: ignore[arg-type]
        lambda: FakeGraph,  # type: ignore[arg-type,return-value]
    )
    assert suite.run(Budget(1e9), lambda *d: rows.extend(rows_of(*d, CEILINGS))) == []
    found = ScaledResults({}, rows)
    assert found.times[OURS] == dict.fromkeys(points, 10.0)
    assert all(found.times[v] == dict.fromkeys(points, 20.0) for v in VARIANTS)
    here = [r for r in rows if (r["N"], r["K"], r["M"]) == SMALL]
    line = bench.point_line(here)
    assert len(line.split("  scaled_m")[0]) == len(bench.HEADER.split("  configuration")[0])
    assert found.names[SMALL] in line
    clock = iter(range(0, 1000, 10))
    left = suite.run(Budget(50, lambda: next(clock)), lambda *d: None)
    assert left == points[2:]
