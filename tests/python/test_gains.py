"""The table of README.md that says what one gains: how a cell is made, and that it would notice."""

from __future__ import annotations

import pytest
from support import pages

from benchmarks.ops import BENCHMARKS
from tools.pages import ROOT, gains
from tools.pages.gains import LINES, ROWS, Line, cell, ratios, rows_of

SMALL = Line("a peer", "a GPU", "", "gemm", {"kind": "own"}, {"kind": "theirs"})


def row(kind: str, n: int, m: int, us: float) -> dict[str, object]:
    return {"kind": kind, "N": str(n), "K": "64", "M": str(m), "us": str(us)}


def test_a_ratio_is_our_time_over_theirs_at_the_same_point() -> None:
    rows = [row("own", 1, 16, 2), row("theirs", 1, 16, 4), row("own", 2, 16, 3)]
    rows += [row("theirs", 2, 16, 2), row("own", 3, 16, 9), row("theirs", 1, 64, 1)]
    assert ratios(rows, SMALL, 16) == [0.5, 1.5]  # nobody timed theirs at N = 3
    assert ratios(rows, SMALL, 64) == []


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ([], "-"),
        ([0.5], "0.50"),
        ([0.504, 0.496], "0.50"),
        ([0.5, 0.25], "0.25-0.50"),
        ([0.9, 1.02], "**0.90-1.02**"),
        ([1.004], "1.00"),
    ],
)
def test_a_cell_is_bold_where_the_other_is_faster(found: list[float], text: str) -> None:
    assert cell(found) == text


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.title)
def test_every_line_has_a_run_and_a_command(line: Line) -> None:
    assert (ROOT / line.file).is_file()
    assert line.command in {benchmark.name for benchmark in BENCHMARKS}
    measured = [m for m in ROWS if ratios(rows_of(line.file), line, m)]
    assert measured[:4] == [1, 16, 64, 256]


def test_the_table_says_where_we_are_behind() -> None:
    assert gains.text().count("**") >= 2


def between(file: str, ours: dict[str, str], other: dict[str, str], rows: tuple[int, ...]) -> str:
    line = Line("", "", file, "", ours, other)
    found = [x for m in rows for x in ratios(rows_of(file), line, m)]
    return f"{min(found):.2f} {{}} {max(found):.2f}"


def test_what_the_page_says_of_others_is_in_the_files() -> None:
    page = " ".join(pages.text("docs/speed.md").split())
    machete = {"kind": "machete", "section": "w4a16"}
    many = between(gains.VLLM, gains.OF_VLLM, machete, (256, 512, 1024, 2048, 4096))
    assert f"from 256 rows on ({many.format('to')})" in page
    both = [
        between(gains.VLLM, {"kind": f"own_{x}"}, {"kind": f"vllm_{x}"}, (4096,))
        for x in ("int8", "fp8")
    ]
    assert f"ours take {both[0].format('to')} and {both[1].format('to')} of their time" in page
    level_4 = {"kind": "ort int4 level 4"}
    one = between(gains.ZEN_4, {"kind": "ours int4 bf16"}, level_4, (1,))
    assert f"at one row: ours takes {one.format('and')} of its time" in page
    slower = [x for x in LINES if x.title in ("Marlin of vLLM", "bitsandbytes, NF4")]
    for line in slower:
        assert all(x < 1 for m in ROWS for x in ratios(rows_of(line.file), line, m))
