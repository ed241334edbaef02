"""benchmarks/: the parts of pages that a script writes, and the plot."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.bench_rows import LARGE, META, SMALL, dense_row, row, row_of

from benchmarks import plot, report, timed
from benchmarks.pages import ROOT, Part
from benchmarks.results import Results
from benchmarks.row import Point
from benchmarks.schemes import MAIN, Scheme

RESULTS = ROOT / "benchmarks" / "results"


@pytest.mark.parametrize(
    "part", (report.GEMM_PART, report.W8A8_PART, report.FP8_PART), ids=lambda p: p.name
)
def test_a_part_of_a_page_is_replaced_and_nothing_else(part: Part) -> None:
    comment, end = f"<!-- {part.name}: a script writes this -->", f"<!-- end of {part.name} -->"
    page = f"before\n{comment}\n\nstale\n\n{end}\nafter\n"
    once = part.replaced(page, "new \\1")
    assert once == f"before\n{comment}\n\nnew \\1\n\n{end}\nafter\n"
    assert part.replaced(once, "new \\1") == once
    with pytest.raises(ValueError, match="one part"):
        part.replaced("no comments", "new")
    with pytest.raises(ValueError, match="got 2"):
        part.replaced(page + page, "new")


def test_the_page_of_a_part_is_searched(tmp_path: Path) -> None:
    part = Part("results")
    text = "<!-- results: x -->\n\nstale\n\n<!-- end of results -->\n"
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("nothing")
    with pytest.raises(ValueError, match="one page must have the part 'results'"):
        part.page(tmp_path)
    (tmp_path / "docs" / "speed.md").write_text(text)
    assert part.page(tmp_path) == tmp_path / "docs" / "speed.md"
    (tmp_path / "README.md").write_text(text)
    with pytest.raises(ValueError, match="got"):
        part.page(tmp_path)


@pytest.mark.parametrize("name", ("gemm_h200.json", "scaled_h200.json", "fp8_h100.json"))
def test_pages_hold_what_the_report_writes_of_the_committed_results(name: str) -> None:
    results = Results.load(RESULTS / name)
    part = report.part_of(results)
    page = part.page()
    told = page.read_text()
    assert part.replaced(told, report.text_of(results, RESULTS / name, page)) == told


def test_gemm_report() -> None:
    bf16, w8 = Scheme.parse("w4_g128_bf16"), Scheme.parse("w8_channel_fp16")
    rows = [row(5.0), dense_row(10.0, SMALL), row(6.0, scheme=bf16), row(7.0, scheme=w8)]
    text = report.gemm_text(Results(META, rows), "results.json", "plot.png")
    assert "| 4096 x 4096 | 5.0 (0.88, 0.50) |" in text
    assert "| 4096 x 4096, channel | 7.0 (0.99, 0.70) |" in text
    assert "| bf16 / fp16 | 1 | 1.20 (1.20) | 1.05 | 1 |" in text
    assert "![time over the roofline](plot.png)" in text


def test_w8a8_report() -> None:
    times = {
        timed.SCALED_MM: {SMALL: 10.0, LARGE: 17.0},
        timed.INT_MM: {SMALL: 10.0, LARGE: 16.0},
        timed.INT_MM_SCALED: {SMALL: 20.0, LARGE: 34.0},
        timed.QUANTIZE: {Point(0, 4096, 1000): 6.144},
    }
    rows = [
        row_of(what, us, point, kernel="a" if what == timed.SCALED_MM else "")
        for what, by_point in times.items()
        for point, us in by_point.items()
    ]
    text = report.w8a8_text(Results(META, rows), "results.json")
    assert "| 4096 x 4096 | 10.0 (1.00, 0.50, -) |" in text
    assert "| scaled_mm / _int_mm | 1.05 | 1.03 (1.06) | 1 of 2 |" in text
    assert "1000 x 4096 fp16: 2000 GB/s" in text


def plotted() -> Results:
    points = [Point(n, 4096, m) for n in (4096, 6144) for m in (1, 16, 1024)]
    return Results(META, [row(4.0 + p.m, point=p) for p in points])


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
