"""tools/reliability_report.py: parts are added up, and what failed is not lost on the way."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import reliability_report as report


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(report.FOLDER, str(tmp_path / "parts"))
    return tmp_path / "parts"


def row(name: str, count: int, failed: int = 0, **more: str) -> dict[str, object]:
    return {"name": name, "count": count, "failed": failed, **more}


def test_rows_of_workers_and_machines_are_added_by_name_and_kept_apart_by_device(folder, capsys):
    report.write_part("cases", [row("gemm", 10), row("conv", 3)], part="gw0")
    report.write_part("cases", [row("gemm", 32)], part="gw1", seconds=2.5)
    report.write_part("cases", [row("gemm", 7)], device="NVIDIA H100", part="gpu")
    out = folder.parent / "docs" / "reliability.md"
    assert report.main([str(folder), "--out", str(out)]) == 0
    text = out.read_text()
    assert "| Answers | cpu | 2 | 45 calls | 0 |" in text
    assert "| gemm | 42 | 0 |  |" in text
    assert "| Answers | NVIDIA H100 | 1 | 7 calls | 0 |" in text


def test_the_page_of_the_committed_parts_is_up_to_date(tmp_path, repository):
    parts = sorted(repository.glob(report.SHORT))
    assert report.main([*map(str, parts), "--out", str(tmp_path / "page.md")]) == 0
    page = repository / "docs" / "reliability.md"
    assert page.read_text() == (tmp_path / "page.md").read_text()


def test_the_page_says_first_what_came_of_it(folder):
    out = folder.parent / "page.md"
    report.write_part("cases", [row("gemm", 10)], part="a", commit="0123456789")
    assert report.main([str(folder), "--out", str(out)]) == 0
    assert out.read_text().splitlines()[2:4] == [
        "**Nothing failed.**",
        "This is a record of runs: a test that is named here has the name of its time (0123456).",
    ]
    report.write_part("fuzz", [row("loaders", 10, 1)])
    assert report.main([str(folder), "--out", str(out)]) == 1
    assert out.read_text().splitlines()[2] == "**1 rows are not clean.**"


def test_every_subject_is_explained():
    assert report.MEANINGS.keys() == report.SUBJECTS.keys()


def test_a_note_stays_in_its_cell(folder, capsys):
    report.write_part("mutants", [row("swap", 1, note="test[a|b]\nline")])
    assert report.main([str(folder)]) == 0
    assert "| swap | 1 | 0 | test[a\\|b] line |" in capsys.readouterr().out


def test_kept_parts_make_the_same_table(folder, capsys):
    report.write_part("cases", [row("gemm", 10)], part="gw0")
    report.write_part("fuzz", [row("loaders", 3)])
    kept = folder.parent / "kept.json"
    assert report.main([str(folder), "--keep", str(kept)]) == 0
    table = capsys.readouterr().out
    assert report.main([str(kept)]) == 0
    assert capsys.readouterr().out == table


@pytest.mark.parametrize(
    ("rows", "text"),
    (
        ([row("off-by-one", 1, 1, note="nothing saw it")], "off-by-one: 1 of 1 survived"),
        ([row("swapped", 0)], "swapped: nothing was tried"),
    ),
)
def test_a_failure_and_a_row_that_tried_nothing_end_with_1(folder, capsys, rows, text):
    report.write_part("mutants", [row("good", 1), *rows])
    assert report.main([str(folder)]) == 1
    assert text in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "text"),
    (
        ("{", "Expecting"),
        ("[]", '"what" must be one of'),
        ({"what": "case", "meta": {"device": "cpu"}, "rows": [row("a", 1)]}, '"what" must be'),
        ({"what": "cases", "meta": {}, "rows": [row("a", 1)]}, '"device"'),
        ({"what": "cases", "meta": {"device": "cpu"}, "rows": []}, "at least one row"),
        ({"what": "cases", "meta": {"device": "cpu"}, "rows": [{"name": "a", "count": 1}]}, "row"),
        ({"what": "cases", "meta": {"device": "cpu"}, "rows": [row("a", -1)]}, "row"),
        ({"what": "cases", "meta": {"device": "cpu"}, "rows": ["a"]}, "row"),
    ),
)
def test_a_file_that_is_no_part_ends_with_1_and_its_name(folder, capsys, content, text):
    report.write_part("cases", [row("gemm", 10)])
    text_of = content if isinstance(content, str) else json.dumps(content)
    (folder / "other.json").write_text(text_of)
    assert report.main([str(folder)]) == 1
    error = capsys.readouterr().err
    assert "other.json" in error and text in error


def test_no_part_at_all_ends_with_1(tmp_path, capsys):
    assert report.main([str(tmp_path)]) == 1
    assert "no part was found" in capsys.readouterr().out


def test_nothing_is_written_unless_asked(tmp_path, monkeypatch):
    monkeypatch.delenv(report.FOLDER, raising=False)
    assert report.write_part("cases", [row("gemm", 1)]) is None
