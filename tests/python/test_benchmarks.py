"""benchmarks/ without a GPU: the join with the peers, the targets, the choice of what to time, the
plot, the tables of docs/speed.md and the reading of ncu's output."""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import missed_points
import ncu_csv
import plot
import profile_gemm
import report
import targets
from operands import Operands
from references import References, references
from results import Results, save
from schemes import MAIN, SUITES, Scheme
from suite import Budget, Choice, Suite, rows_of
from timing import LEAST_REPLAY_US, Graph, rotations, time_interleaved

import mixed_gemm

CEILINGS = {"read_gb_per_s": 4000.0, "dense_fp16_tflops": 750.0}
META = {"gpu": "test", "torch": "2", "cuda": "13", "ceilings": CEILINGS}
SMALL = (4096, 4096, 1)  # peers_h200.csv: best peer 5.7 (TensorRT-LLM), ours must take 5.13
PLAN_ON = "cuda:sm=90,sms=132,smem=232448"


def row(us: float, kernel: str = "a", selected: bool = True, **other: Any) -> dict[str, Any]:
    n, k, m = other.pop("point", SMALL)
    scheme = other.pop("scheme", MAIN)
    return {
        "op": "fpA_intB_gemm",
        "kernel": kernel,
        "selected": selected,
        **{f: getattr(scheme, f) for f in ("dtype", "bits", "group_size", "zero_mode")},
        **{"N": n, "K": k, "M": m, "us": us, "us_min": us, "us_max": us, "roofline_us": 2.0},
        **other,
    }


def cublas(us: float, point: tuple[int, int, int]) -> dict[str, Any]:
    dense = Scheme(16, None, None, "float16")
    return row(us, "cublas", False, op="cublas", point=point, scheme=dense)


@pytest.mark.parametrize("scheme", [s for suite in SUITES.values() for s in suite])
def test_scheme_name_parses_back(scheme: Scheme) -> None:
    assert Scheme.parse(scheme.name) == scheme


@pytest.mark.parametrize("name", ("", "w4_g128", "w3_g128_fp16", "w4_g_fp16", "w4_g128_mul_fp16"))
def test_scheme_name_that_means_nothing_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="w4_g128_fp16"):
        Scheme.parse(name)


def test_traffic_is_the_floor_that_the_design_states() -> None:
    point = 57344, 8192, 1
    assert MAIN.traffic_bytes(point) / 4.4e6 == pytest.approx(55, abs=0.3)  # us at 4.4 TB/s
    zeros = dataclasses.replace(MAIN, zero_mode="sub")
    assert zeros.traffic_bytes(point) - MAIN.traffic_bytes(point) == 2 * 57344 * 8192 / 128


def test_full_suite_has_every_point_of_both_peer_files() -> None:
    assert len(MAIN.points()) == 78
    assert {s.name: len(s.points()) for s in SUITES["w8a16"]} == {
        "w8_channel_fp16": 36,
        "w8_g128_fp16": 36,
    }


def test_references_join_the_peers_of_the_same_kind() -> None:
    g64 = Scheme.parse("w4_g64_fp16")
    dense = 4096, 4096, 16
    results = Results(META, [row(5.0), row(9.0, scheme=g64), row(9.0, point=dense)])
    at = references(results, MAIN)
    assert (at[SMALL].peer, at[SMALL].mma_sync, at[SMALL].cublas) == (5.7, 5.7, 13.9)
    assert references(results, g64)[SMALL].peer == 9.8
    assert Results(META, [cublas(7.5, SMALL)]).cublas == {"float16": {SMALL: 7.5}}
    with_cublas = Results(META, [row(5.0), cublas(7.5, SMALL)])
    assert references(with_cublas, MAIN)[SMALL].cublas == 7.5, "of the same run where it is there"


@pytest.mark.parametrize(
    ("m", "limit"),
    (
        (1, 90.0),  # 0.90 of the best peer
        (64, 114.0),  # 0.95 of the best mma.sync peer
        (256, 108.0),  # 1.35 of cuBLAS, less than that
        (1024, 96.0),
        (2048, 88.0),
        (4096, 84.8),
    ),
)
def test_main_targets_are_those_of_the_design(m: int, limit: float) -> None:
    refs = References(peer=100, mma_sync=120, cublas=80, floor=50)
    (target,) = (t for t in targets.MAIN_TARGETS if t.first <= m <= t.last)
    assert target.limit_of(refs) == pytest.approx(limit)


def test_targets_take_the_larger_or_smaller_of_their_two_parts() -> None:
    refs = References(peer=100, mma_sync=100, cublas=80, floor=90)
    assert targets.MAIN_TARGETS[0].limit_of(refs) == pytest.approx(99)
    assert targets.MAIN_TARGETS[2].limit_of(refs) == pytest.approx(95)
    assert targets.OTHER_TARGETS[0].limit_of(refs) == pytest.approx(99)
    unknown = dataclasses.replace(refs, cublas=None)
    assert targets.MAIN_TARGETS[2].limit_of(unknown) is None


def test_judge_counts_points_that_meet_their_target() -> None:
    slow, large = (8192, 8192, 1), (4096, 4096, 1024)
    rows = [row(5.13), row(30.0, point=slow), row(60.0, point=large), cublas(50.0, large)]
    few, many = targets.judge(Results(META, rows), MAIN)
    assert (few.target.band, few.met, few.misses) == ("1-16", 1, [slow])
    assert few.over_limit[SMALL] == pytest.approx(1.0)
    assert few.peer[SMALL] == pytest.approx(5.13 / 5.7)
    assert targets.faster(few.peer) == "faster at 1 of 2"
    assert (many.target.band, many.met) == ("1024", 1)
    assert many.over_limit == {large: pytest.approx(1.0)}


def test_schemes_are_compared_at_shared_points() -> None:
    bf16 = Scheme.parse("w4_g128_bf16")
    elsewhere = 4096, 4096, 2
    rows = [row(10.0), row(10.7, scheme=bf16), row(9.0, scheme=bf16, point=elsewhere)]
    results = Results(META, rows)
    assert targets.ratios_of(results, targets.SCHEME_RATIOS[0]) == {SMALL: pytest.approx(1.07)}
    text = "\n".join(targets.summary(results))
    assert "bf16 / fp16: 1.07 (1.07), beyond 1.05 at 1 of 1\n    4096x4096@1 1.07" in text
    assert "group 64" not in text


def test_regret_is_against_the_best_measured_configuration() -> None:
    results = Results(META, [row(6.0), row(5.0, "b", False), row(7.0, "c", False)])
    assert targets.regrets(results, MAIN) == {SMALL: targets.Regret(pytest.approx(1.2), "b")}


def test_missed_points_are_what_is_beyond_a_target_and_what_it_is_compared_with() -> None:
    bf16, zeros = Scheme.parse("w4_g128_bf16"), Scheme.parse("w4_g128_sub_fp16")
    slow, chosen = (8192, 8192, 1), (4096, 4096, 2)
    rows = [row(5.0), row(5.2, scheme=bf16), row(5.2, scheme=zeros)]  # all met
    rows += [row(30.0, point=slow), row(31.0, scheme=bf16, point=slow)]
    rows += [row(4.0, point=chosen), row(4.4, scheme=zeros, point=chosen)]
    rows += [row(4.0, "b", False, scheme=zeros, point=chosen)]
    results = Results(META, rows)
    symmetric, sub = "4096:4096:2@w4_g128_fp16", "4096:4096:2@w4_g128_sub_fp16"
    requests = [f"selected@{symmetric}", f"b@{sub}", f"selected@{sub}"]
    assert missed_points.requests(results) == [*requests, "selected@8192:8192:1@w4_g128_fp16"]

    def counters(us: float, stall: float) -> list[dict[str, Any]]:
        numbers = dict.fromkeys(missed_points.UNITS.values(), us)
        numbers |= {"us": us, "dram_read_bytes": us, "instructions": us, "l2_pct": 90.0}
        flags = {"kernel": "zero_flags_kernel", "numbers": {}, "stalls": {}}
        return [flags, {"kernel": "gemm", "numbers": numbers, "stalls": {"wait": stall, "x": 0.1}}]

    profiles = {text: counters(4.0 + i, 1.0 + i) for i, text in enumerate(requests)}
    profiles["selected@8192:8192:1@w4_g128_fp16"] = counters(31.0, 4.0)
    limit, ratio, regret = missed_points.table(results, profiles)[2:5]
    assert limit.startswith("| w4_g128_fp16 / limit: 8192 x 8192, M = 1 | a | ")
    assert limit.endswith(" | 31.0 | - | - | L2 90, DRAM 31 | wait 4.0, x 0.1 |")
    assert ratio == (
        "| zeros / symmetric: 4096 x 4096, M = 2 | a | 1.10 | 4.0 -> 6.0 | 1.50 | 1.50 "
        "| L2 90 -> 90, DRAM 4 -> 6 | wait 3.0, x 0.1 |"
    )
    assert "selected / best: 4096 x 4096, M = 2 | b -> a | 1.10 | 5.0 -> 6.0 |" in regret


def test_results_file_keeps_a_row_a_line_and_the_earlier_file_wins(tmp_path: Path) -> None:
    rows = [row(5.0), row(6.0, "b", False)]
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    save(first, META, rows)
    save(second, META, [row(9.0), row(8.0, point=(4096, 4096, 2))])
    assert json.loads(first.read_text()) == {"meta": META, "rows": rows}
    assert sum('"us"' in line for line in first.read_text().splitlines()) == 2
    assert set(tmp_path.iterdir()) == {first, second}, "nothing partial is left"
    merged = Results.load(first, second)
    assert merged.selected[MAIN] == {SMALL: 5.0, (4096, 4096, 2): 8.0}


class FakeGraph:
    """A replay takes the next of the times it was given, the last one for ever."""

    def __init__(self, *us: float, calls: int = 1) -> None:
        self.calls_a_sample, self.most_ms = calls, Graph.most_ms
        self.replays = 0
        self._us = itertools.chain(us, itertools.repeat(us[-1]))

    def sample_us(self) -> float:
        self.replays += 1
        return next(self._us)


def test_timing_is_the_median_without_the_warm_up() -> None:
    timing = time_interleaved({"a": FakeGraph(99.0, 5.0, 1.0, 3.0)}, rounds=3)["a"]
    assert (timing.us, timing.us_min, timing.us_max) == (3.0, 1.0, 5.0)


def test_timing_stops_replaying_what_is_clearly_behind() -> None:
    graphs = {
        "best": FakeGraph(10.0),
        "hopeless": FakeGraph(16.0),
        "behind": FakeGraph(12.0),
        "selected": FakeGraph(30.0),
        "cublas": FakeGraph(100.0),
    }
    contests = dict.fromkeys(("best", "hopeless", "behind", "selected"), "scheme")
    timings = time_interleaved(graphs, 7, contests, {"selected"})
    assert {name: graph.replays - 1 for name, graph in graphs.items()} == {
        "best": 7,
        "hopeless": 1,
        "behind": 2,
        "selected": 7,
        "cublas": 7,
    }
    assert timings["hopeless"].us == 16.0


def test_timing_gives_long_kernels_fewer_rounds() -> None:
    graphs = {"long": FakeGraph(20e3, calls=2), "longer": FakeGraph(6e3, calls=2)}
    time_interleaved(graphs, 7)
    assert {name: graph.replays - 1 for name, graph in graphs.items()} == {"long": 3, "longer": 5}


def test_short_graphs_go_through_their_calls_more_often() -> None:
    assert rotations(LEAST_REPLAY_US) == rotations(20e3) == 1
    for replay_us in (0.0, 3.0, 140.0, LEAST_REPLAY_US - 1):
        assert rotations(replay_us) * max(replay_us, 1.0) >= LEAST_REPLAY_US


def test_choice_times_the_selected_one_and_leaves_out_the_hopeless() -> None:
    selected, names = Choice(most=2, device=PLAN_ON).candidates(MAIN, (4096, 4096, 16))
    plan = mixed_gemm.plan(16, 4096, 4096, device=PLAN_ON)
    predicted = {c.config: c.predicted_us or 0.0 for c in plan.candidates}
    best = min(predicted.values())
    assert selected == plan.selected == names[0]
    assert {c.config for c in plan.candidates[:2]} <= set(names)
    assert all(predicted[name] <= 2 * best for name in names[1:])
    everything = Choice(most=None, within=float("inf"), device=PLAN_ON)
    assert set(everything.candidates(MAIN, (4096, 4096, 16))[1]) == set(predicted)


class FakeOperands:
    def __init__(self, n: int, k: int) -> None:
        self.n, self.k = n, k

    def ours(self, scheme: Scheme, m: int, config: str) -> list[float]:
        return [10.0 + scheme.bits]

    def cublas(self, dtype: str, m: int) -> list[float]:
        return [50.0]

    def aten_int4(self, m: int) -> list[float]:
        return [70.0]


def fake_suite(points: list[tuple[int, int, int]], names: str) -> Suite:
    return Suite(
        [Scheme.parse(name) for name in names.split()],
        points,
        Choice(device=PLAN_ON),
        rounds=3,
        make_operands=FakeOperands,  # type: ignore[arg-type]
        new_pool=lambda: lambda calls: FakeGraph(calls[0]),  # type: ignore[arg-type]
    )


def test_suite_measures_every_scheme_and_cublas_once_a_dtype() -> None:
    rows: list[dict[str, Any]] = []
    points = [(6144, 4096, 1), SMALL]
    left = fake_suite(points, "w4_g128_fp16 w4_g128_bf16 w8_channel_fp16").run(
        Budget(1e9), lambda *done: rows.extend(rows_of(*done, CEILINGS, keep=1))
    )
    assert left == []
    results = Results(META, rows)
    selected = {s.name: sorted(p) for s, p in results.selected.items()}
    assert selected == {
        "w4_g128_fp16": sorted(points),
        "w4_g128_bf16": sorted(points),
        "w8_channel_fp16": [SMALL],  # no peer of it at 6144
    }
    assert results.selected[MAIN][SMALL] == 14.0
    assert {dtype: set(p.values()) for dtype, p in results.cublas.items()} == {
        "float16": {50.0},
        "bfloat16": {50.0},
    }
    assert len([r for r in rows if r["op"] == "cublas"]) == 4
    assert results.aten == dict.fromkeys(points, 70.0)
    assert all(len(k) <= 2 for p in results.measured.values() for k in p.values())
    weights = 4096 * 4096 / 2 + 2 * 32 * 4096
    assert results.roofline[MAIN][SMALL] == round((weights + 4 * 4096) / 4e6, 2)


def test_suite_stops_before_a_point_that_may_exceed_the_budget() -> None:
    now = itertools.count(0, 10)  # every look at the clock: 10 s later
    done: list[tuple[int, int, int]] = []
    points = [(4096, 4096, m) for m in (1, 2, 4, 8)]
    left = fake_suite(points, "w4_g128_fp16").run(
        Budget(50, lambda: next(now)), lambda point, *_: done.append(point)
    )
    assert (done, left) == (points[:2], points[2:])


@pytest.mark.parametrize("name", ("w4_g32_sub_bf16", "w8_channel_fp16"))
def test_operands_make_calls_that_differ_in_their_weight(name: str) -> None:
    n, k, m = 64, 128, 2
    scheme = Scheme.parse(name)
    operands = Operands(n, k, "cpu")
    options = {"bits": scheme.bits, "group_size": scheme.group_size}
    plan = mixed_gemm.plan(m, n, k, dtype=scheme.dtype, device="cpu", **options)  # type: ignore
    calls = operands.ours(scheme, m, plan.selected)
    assert calls[0]().shape == (m, n)  # type: ignore[attr-defined]
    assert len(operands.cublas(scheme.dtype, m)) == len(calls) == 64
    assert len({tuple(call().flatten().tolist()) for call in calls}) == 64  # type: ignore
    again = operands.ours(scheme, m, plan.selected)
    assert torch.equal(again[3](), calls[3]()), "the same operands"  # type: ignore[arg-type]


def plotted() -> Results:
    points = [(n, 4096, m) for n in (4096, 6144) for m in (1, 16, 1024)]
    return Results(META, [row(4.0 + p[2], point=p) for p in points])


def test_plot_lines_are_ratios_to_the_roofline() -> None:
    lines = plot.lines_of(plotted(), MAIN, (4096, 4096))
    assert lines["mixed_gemm, as plan() selects"] == {1: 2.5, 16: 10.0, 1024: 514.0}
    assert lines["best peer"][1] == pytest.approx(5.7 / 2)
    assert "aten int4, bf16" not in lines, "this run did not measure it"


@pytest.mark.parametrize("suffix", ("png", "svg"))
def test_plot_writes_a_file(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"plot.{suffix}"
    plot.draw(plotted(), MAIN, path)
    assert 10_000 < path.stat().st_size < 200_000


def test_report_replaces_only_its_part_and_is_idempotent() -> None:
    bf16, w8 = Scheme.parse("w4_g128_bf16"), Scheme.parse("w8_channel_fp16")
    results = Results(
        META, [row(5.0), cublas(10.0, SMALL), row(6.0, scheme=bf16), row(7.0, scheme=w8)]
    )
    text = report.text_of(results, "results.json", "plot.png")
    readme = f"before\n{report.BEGIN}\nstale\n{report.END}\nafter\n"
    once = report.replaced(readme, text)
    assert report.replaced(once, text) == once
    assert once.startswith("before\n")
    assert once.endswith("\nafter\n")
    assert "stale" not in once
    assert "| 4096 x 4096 | 5.0 (0.88, 0.50) |" in once
    assert "| 4096 x 4096, channel | 7.0 (0.99, 0.70) |" in once
    assert "| bf16 / fp16 | 1 | 1.20 (1.20) | 1.05 | 1 |" in once
    assert "![time over the roofline](plot.png)" in once
    with pytest.raises(ValueError, match="unpack"):
        report.replaced("no markers", text)


TIME, DRAM = "gpu__time_duration.sum", "dram__throughput.avg.pct_of_peak_sustained_elapsed"
STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
WIDE_HEADER = ["ID", "Kernel Name", TIME, DRAM, "launch__registers_per_thread"] + [
    STALLED.format(reason) for reason in ("wait", "long_scoreboard", "selected", "wait_not_issued")
]
KERNEL = "void mixed_gemm::skinny_kernel<F16, 4>(mixed_gemm::Args)"
SPIN = "at::cuda::<unnamed>::spin_kernel(long)"


def wide(*launches: Sequence[object]) -> str:
    units = ["", "", "ns", "%", "register/thread", "inst", "inst", "inst", "inst"]
    lines = [WIDE_HEADER, units, *([str(i), *launch] for i, launch in enumerate(launches))]
    return "==PROF== Connected\n" + "\n".join(
        ",".join(f'"{cell}"' for cell in line) for line in lines
    )


def test_ncu_wide_table_is_condensed() -> None:
    text = wide((KERNEL, "12,345", "81.5", "64", "0.5", "3.25", "1", "9"))
    (profile,) = ncu_csv.parse(text + "\n==PROF== Disconnected")
    assert profile.kernel == "skinny_kernel"
    assert profile.numbers == {"us": pytest.approx(12.345), "dram_pct": 81.5, "registers": 64}
    assert list(profile.stalls.items()) == [("long_scoreboard", 3.25), ("wait", 0.5)]
    (cells,) = ncu_csv.table_rows("here", [profile])
    assert len(cells) == len(ncu_csv.title_cells())
    assert cells[:4] == ["here", "skinny_kernel", "12.3", "82"]
    assert cells[-1] == "long_scoreboard 3.2, wait 0.5"


def test_ncu_long_table_is_condensed() -> None:
    lines = [
        ("ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value"),
        ("0", KERNEL, TIME, "usecond", "1.5"),
        ("0", KERNEL, "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "", "1,000"),
        ("0", KERNEL, "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", "", "4,000"),
        ("1", SPIN, TIME, "usecond", "2"),
    ]
    text = "\n".join(",".join(f'"{cell}"' for cell in line) for line in lines)
    first, second = ncu_csv.parse(text)
    assert (first.numbers["us"], second.kernel) == (1.5, "spin_kernel")
    assert "25%" in ncu_csv.table_rows("here", [first])[0]
    with pytest.raises(ValueError, match="no table of ncu"):
        ncu_csv.parse("==ERROR== nothing was profiled")


def test_profile_takes_the_faster_call_of_each_point() -> None:
    def launch(name: str, ns: int) -> tuple[str, ...]:
        return (name, str(ns), *"1111111")[:8]

    requests = [
        profile_gemm.Request.parse(text, MAIN)
        for text in ("dequantize_dense@4096:4096:64", "selected@4096:4096:1@w8_channel_bf16")
    ]
    assert requests[1].scheme.name == "w8_channel_bf16"
    launches = [
        launch(SPIN, 1),
        launch("dequantize<1>(int)", 900),
        launch("gemm(int)", 400),
        launch(SPIN, 1),
        launch("dequantize<1>(int)", 800),
        launch("gemm(int)", 400),
        launch(SPIN, 1),
        launch(KERNEL, 50),
        launch(SPIN, 1),
        launch(KERNEL, 60),
    ]
    found = profile_gemm.condensed(requests, wide(*launches))
    times = {text: [(p.kernel, p.numbers["us"]) for p in call] for text, call in found.items()}
    assert times == {
        "dequantize_dense@4096:4096:64": [("dequantize", 0.8), ("gemm", 0.4)],
        "selected@4096:4096:1@w8_channel_bf16": [("skinny_kernel", 0.05)],
    }
    with pytest.raises(ValueError, match="4 calls were made, ncu reports 3"):
        profile_gemm.condensed(requests, wide(*launches[:8]))


@pytest.mark.parametrize("text", ("a", "a@1:2", "a@1:2:x", "a@1:2:3@w4_g128_fp16@b"))
def test_profile_refuses_points_it_cannot_read(text: str) -> None:
    with pytest.raises(ValueError, match="configuration@N:K:M"):
        profile_gemm.Request.parse(text, MAIN)


def test_ncu_is_asked_only_for_counters_of_this_gpu() -> None:
    stall = STALLED.format("wait").removesuffix(".ratio")
    query = (
        f"Device test\n-----\ngpu__time_duration  Counter\n{stall}  Ratio  inst\n\nother__x  Ratio"
    )
    assert ncu_csv.counters_of(query) == [TIME, f"{stall}.ratio"]
    command = profile_gemm.ncu_command(Path("x.csv"), [TIME], "a@1:2:3", MAIN.name)
    assert command[command.index("--metrics") + 1] == TIME
    assert command[-5:] == ["--launch", "--points", "a@1:2:3", "--scheme", "w4_g128_fp16"]
