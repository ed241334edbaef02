"""benchmarks/ from end to end: every op on the CPU with tiny shapes, and what the runner decides on
samples that are given."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.bench_rows import CEILINGS, SMALL, FakeTimer

from benchmarks import ceilings, compare_builds, host_time, make_tuned_table, runner, timed
from benchmarks.benchmark import Benchmark, Case, Effort
from benchmarks.budget import Budget
from benchmarks.lines import HEADER, lines_of
from benchmarks.old_rows import row_of as old_row
from benchmarks.ops import BENCHMARKS
from benchmarks.pages import ROOT
from benchmarks.results import Results
from benchmarks.row import Point, Row, save
from benchmarks.schemes import MAIN, Scheme
from benchmarks.timed import ATEN, DENSE, GEMM, Timed
from mixed_gemm.selection import tables

CPU = torch.device("cpu")
TINY = {
    "gemm": ("--shapes", "64:128,32:256", "--m", "1,3", "--suite", "cpu"),
    "gemm_peers": ("--shapes", "64:128", "--m", "1,3"),
    "floats": ("--shapes", "64:128", "--m", "1,3"),
    "scaled_mm": ("--shapes", "64:128", "--m", "1,3"),
    "fp8": ("--shapes", "64:128", "--m", "1,3"),
    "awq_gemm": ("--shapes", "64:256", "--m", "2"),
    "block_quant_gemm": ("--shapes", "64:256", "--m", "2,40", "--block-size", "64"),
    "qconv2d": ("--layers", "16x8x8 -> 8, 3x3, stride 1; 3x8x8 -> 8, 1x1, stride 2", "--offsets"),
}
ON_CPU = ("--device", "cpu", "--rounds", "2", "--commit", "test")
COMPARED = {
    "gemm": (GEMM, DENSE, ATEN),
    "gemm_peers": (GEMM, DENSE, ATEN),  # and of libraries that tests do not install
    "floats": (timed.FLOAT_GEMM, GEMM, DENSE),
    "scaled_mm": (
        "scaled_mm",
        "scaled_mm_azp",
        "scaled_mm_azp, per token",
        "torch._int_mm",
        "torch._int_mm + scaling",
        "torch._scaled_mm",
        "quantize_per_token + scaled_mm",
        DENSE,
        *(what.op for what in timed.QUANTIZERS),
    ),
    "fp8": (
        *(what.op for what in (timed.FP8_OURS, timed.FP8_BLOCKS, timed.INT8_BF16)),
        *(what.op for what in (timed.TORCH_FP8, timed.TORCH_FP8_FAST, timed.QUANTIZE)),
        *(what.op for what in (timed.QUANTIZE_FP8, timed.QUANTIZE_FP8_BLOCKS)),
    ),
    "awq_gemm": (timed.AWQ_GEMM, GEMM),
    "block_quant_gemm": (timed.BLOCK_GEMM, timed.LOOP, timed.LOOP_PRODUCTS, DENSE),
    "qconv2d": (timed.QCONV2D, timed.CONV2D),
}


@pytest.fixture
def small_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "SIDE_ON_CPU", 256)
    monkeypatch.setattr(ceilings, "BYTES_ON_CPU", 1 << 20)


@pytest.mark.usefixtures("small_ceilings")
@pytest.mark.parametrize("kind", BENCHMARKS, ids=lambda kind: kind.name)
def test_every_benchmark_runs_on_the_cpu(
    kind: type[Benchmark], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    runner.main([kind.name, *TINY[kind.name], *ON_CPU, "--out", str(out)])
    printed = capsys.readouterr().out.splitlines()
    data = json.loads(out.read_text())
    meta, rows = data["meta"], data["rows"]
    assert meta["benchmark"] == kind.name and meta["commit"] == "test" and meta["cpu"]
    assert {row["op"] for row in rows} == set(COMPARED[kind.name])
    for row in rows:
        assert 0 < row["us_min"] <= row["us"] <= row["us_max"]
        assert row["roofline_us"] >= 0
    results = Results.load(out)
    points = {row.point for row in map(old_row, rows)}
    assert printed[0].endswith(f"{len(points)} points") and printed[1] == HEADER
    ours = [row for row in rows if row["selected"]]
    assert len(ours) == sum(line.startswith(f"{row['op']:>16} ") for row, line in zip(
        ours, printed[2:], strict=False
    )), "a line for each"  # fmt: skip
    for op in COMPARED[kind.name]:
        assert results.of(Timed(op)), op


@pytest.mark.usefixtures("small_ceilings")
def test_the_command_is_the_package() -> None:
    """As a process of its own, in a folder that is not the repository's."""

    def python(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)

    listed = python("-m", "benchmarks", "--help")
    assert all(kind.name in listed.stdout for kind in BENCHMARKS), listed.stderr
    script = ROOT / "benchmarks" / "compare_builds.py"
    said = subprocess.run(
        [sys.executable, str(script), "--help"], cwd="/", capture_output=True, text=True
    )
    assert "--old-commit" in said.stdout, said.stderr


@pytest.mark.parametrize(
    "module", ("targets", "report", "plot", "missed_points", "profile_gemm", "results", "lines")
)
def test_what_reads_results_needs_no_torch(module: str) -> None:
    block = "import sys; sys.modules['torch'] = None; sys.modules['mixed_gemm'] = None"
    code = f"{block}; import benchmarks.{module}"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_ceilings_of_the_cpu_are_those_of_the_faster(small_ceilings: None) -> None:
    found = ceilings.measured(CPU)
    assert set(found) == {"read_gb_per_s", "dense_fp32_tflops", "dense_bf16_tflops"}
    assert min(found.values()) > 0


class Given(Benchmark):
    """Cases whose microseconds are written where the calls should be."""

    name = "given"
    effort = Effort(rounds=3, keep=1)

    def __init__(self, *points: Point, device: str = "cpu") -> None:
        self.device, self.given = torch.device(device), list(points)
        self.made: list[Point] = []

    def points(self) -> list[Point]:
        return self.given

    def operands(self, point: Point) -> object:
        self.made.append(point)
        return point

    def cases(self, operands: Any, point: Point, effort: Effort) -> Iterator[Case]:
        assert (operands.n, operands.k) == (point.n, point.k)
        for name, us in (("a", 14.0), ("b", 12.0), ("c", 13.0), ("d", 90.0)):
            yield Case(GEMM, MAIN, [us], kernel=name, selected=name == "a", always=name == "d")  # type: ignore[list-item]
        yield Case(DENSE, Scheme.dense("float16"), [50.0])  # type: ignore[list-item]


@pytest.fixture
def given_samples(monkeypatch: pytest.MonkeyPatch) -> dict[float, FakeTimer]:
    """Timers of what Given yields, by microseconds, of the last point."""
    made: dict[float, FakeTimer] = {}

    def timers_of(calls: Mapping[int, Sequence[float]], device: torch.device) -> Any:
        made.clear()
        made.update({us: FakeTimer(us) for (us,) in calls.values()})
        return {key: made[us] for key, (us,) in calls.items()}

    monkeypatch.setattr(runner, "timers_of", timers_of)
    return made


def run(benchmark: Benchmark, budget: Budget | None = None) -> tuple[list[Row], list[Point]]:
    rows: list[Row] = []
    budget = budget or Budget(1e9)
    left = runner.run(
        benchmark, benchmark.effort, CEILINGS, budget, lambda _, new: rows.extend(new)
    )
    return rows, left


def test_runner_writes_the_selected_the_fastest_and_the_others(
    given_samples: dict[float, FakeTimer],
) -> None:
    rows, left = run(Given(SMALL))
    assert left == []
    kernels = {row.kernel: (row.us, row.selected) for row in rows if row.op == GEMM}
    assert kernels == {"a": (14.0, True), "b": (12.0, False), "d": (90.0, False)}
    assert [row.us for row in rows if row.op == DENSE] == [50.0]
    weights = 4096 * 4096 / 2 + 2 * 32 * 4096
    assert rows[0].roofline_us == round((weights + 4 * 4096) / 4e6, 2)
    assert {us: timer.samples - 1 for us, timer in given_samples.items()} == {
        14.0: 3,  # selected
        12.0: 3,
        13.0: 3,
        90.0: 3,  # always
        50.0: 3,  # in no contest
    }
    ((line),) = lines_of(rows, lambda point, scheme: {"best peer": 28.0})
    assert line.startswith(f"{GEMM:>16} {'w4_g128_fp16':>16}   4096   4096      1     14.00")
    assert line.endswith("1.17  a (b): F.linear 0.28, best peer 0.50")
    assert len(line.split("  a (b)")[0]) == len(HEADER.split("  configuration")[0])


@pytest.mark.usefixtures("given_samples")
def test_runner_makes_the_operands_of_a_weight_once() -> None:
    first, second = Point(8, 16, 1), Point(16, 16, 1)
    benchmark = Given(second, first, first._replace(m=2), second._replace(layer="other"))
    rows, left = run(benchmark)
    assert left == [] and len(rows) == 4 * 4
    assert benchmark.made == [first, second, second._replace(layer="other")]


@pytest.mark.usefixtures("given_samples")
def test_runner_lets_the_clock_rise_between_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(runner.time, "sleep", slept.append)
    monkeypatch.setattr(Given, "settle_s", 1.5)
    points = [Point(8, 16, 1), Point(8, 16, 2), Point(16, 16, 1)]
    run(Given(*points, device="cuda"))
    assert slept == [1.5, 1.5], "once a weight"
    run(Given(*points))
    assert slept == [1.5, 1.5], "a CPU has no such clock"


@pytest.mark.usefixtures("given_samples")
def test_runner_stops_before_a_point_that_may_exceed_the_budget() -> None:
    now = itertools.count(0, 10)  # every look at the clock: 10 s later
    points = [Point(4096, 4096, m) for m in (1, 2, 4, 8)]
    rows, left = run(Given(*points), Budget(50, lambda: next(now)))
    assert left == points[2:]
    assert {row.point for row in rows} == set(points[:2])


@pytest.mark.parametrize("words", (["--candidates", "all", "--within", "inf"], ["--keep", "all"]))
def test_effort_is_what_the_options_say(words: list[str]) -> None:
    args = runner.arguments(["gemm", *words])
    found = runner.effort_of(args)
    assert found.rounds == 7
    if words[0] == "--keep":
        assert (found.candidates, found.within, found.keep) == (6, 2.0, None)
    else:
        assert (found.candidates, found.within, found.keep) == (None, float("inf"), 2)


def test_tuned_table_has_the_fastest_of_each_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "SHIPPED", tmp_path / "tuned")
    source = tmp_path / "gemm.json"
    config = "multistage_m16n128s4"
    rows = [
        Row(GEMM, name, name == config, "float16", 256, 128, 1, us, us, us, 1.0, 4, 128)
        for name, us in ((config, 3.0), ("skinny_m8n16w8", 2.0), ("wgmma_m64n128s4", 4.0))
    ]
    rows.append(Row(DENSE, "", False, "float16", 256, 128, 1, 1.0, 1.0, 1.0, 1.0, 16))
    save(source, {"gpu": "test"}, rows)

    def made(*options: str) -> set[tuple[str, str, float]]:
        monkeypatch.setattr(sys, "argv", ["", str(source), "--sm", "90", "--sms", "132", *options])
        make_tuned_table.main()
        (path,) = (tmp_path / "tuned").glob("*.json")
        entries = json.loads(path.read_text())["entries"]
        return {(x["weight"], x["config"], x["us"]) for x in entries}

    integers = {("int4", "skinny_m8n16w8", 2.0)}
    assert made() == integers
    # The time of integers beside floats is of their choice, and is no line.
    floats = replace(rows[0], op=timed.FLOAT_GEMM, weight="nf4", group_size=64)
    save(source, {"gpu": "test"}, [rows[2], floats, replace(floats, kernel="skinny_m8n64w8", us=2)])
    assert made("--add") == {*integers, ("nf4", "skinny_m8n64w8", 2.0)}
    assert made() == {("nf4", "skinny_m8n64w8", 2.0)}


def test_host_time_of_every_call_in_every_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"SIZE": 128, "CALLS": 2, "ROUNDS": 2, "LAYERS": 2}.items():
        monkeypatch.setattr(host_time, name, value)
    out, threads = tmp_path / "host.json", torch.get_num_threads()
    try:
        host_time.main(["--device", "cpu", "--out", str(out)])
    finally:
        torch.set_num_threads(threads)
    data = json.loads(out.read_text())
    compiled = data["us"].pop("compiled, 2 layers of 64 x 64, a layer")
    assert set(compiled) == {"nn.Linear", "mixed_gemm.Linear", "the op on buffers"}
    assert set(data["us"]) == {
        "no_grad", "inference_mode", "gradients recorded, none asked for", "with a gradient",
    }  # fmt: skip
    for us in data["us"].values():
        assert set(us) == {"nn.Linear", "mixed_gemm.Linear", "F.linear", "torch.ops"}
        assert min(us.values()) > 0
    assert data["meta"]["threads"] == 1


def test_two_builds_are_compared_on_the_same_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU, with the build's own op as that of the other one."""
    monkeypatch.setattr(compare_builds, "DEVICE", CPU)
    monkeypatch.setattr(compare_builds, "SHAPES", [(64, 128)])
    monkeypatch.setattr(compare_builds, "ROWS", [1, 3])
    ops = torch.ops.mixed_gemm
    found = list(compare_builds.gemm_cases(ops, [MAIN], "relu"))
    assert [name.split(" ")[0] for name, _ in found] == ["selected", "selected"]
    for _, calls in found:
        new, old = calls["new"], calls["old"]
        assert len(new) == len(old) == 64
        assert torch.equal(new[5](), old[5]())  # type: ignore[arg-type]
