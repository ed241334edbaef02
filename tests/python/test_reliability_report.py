"""tools/reliability_parts.py and the page of them: parts are added up, and a failure is not lost on
the way."""

from __future__ import annotations

import json

import pytest

from tools.pages import reliability as report

import reliability_parts as parts  # isort: skip  tools.pages puts its folder on the path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(parts.FOLDER, str(tmp_path / "parts"))
    return tmp_path / "parts"


def row(name: str, count: int, failed: int = 0, **more: str) -> dict[str, object]:
    return {"name": name, "count": count, "failed": failed, **more}


def test_rows_of_workers_and_machines_are_added_by_name_and_kept_apart_by_device(folder, capsys):
    parts.write_part("cases", [row("gemm", 10), row("conv", 3)], part="gw0")
    parts.write_part("cases", [row("gemm", 32)], part="gw1", seconds=2.5)
    parts.write_part("cases", [row("gemm", 7)], device="NVIDIA H100", part="gpu")
    assert report.main([str(folder)]) == 0
    text = capsys.readouterr().out
    assert "| Answers | cpu | 2 | 45 calls | 0 |" in text
    assert "| gemm | 42 | 0 |  |" in text
    assert "| Answers | NVIDIA H100 | 1 | 7 calls | 0 |" in text


def test_the_page_says_first_what_came_of_it(folder):
    parts.write_part("cases", [row("gemm", 10)], part="a", commit="0123456789")
    assert page(folder)[2:4] == [
        "**Nothing failed.**",
        "This is a record of runs: a test that is named here has the name of its time (0123456).",
    ]
    parts.write_part("fuzz", [row("loaders", 10, 1)])
    assert page(folder)[2] == "**1 rows are not clean.**"


def page(folder):
    return report.page(parts.read_parts(parts.files_of([folder]))).splitlines()


def test_every_subject_is_explained():
    assert report.MEANINGS.keys() == parts.SUBJECTS.keys()


def test_a_note_stays_in_its_cell(folder, capsys):
    parts.write_part("mutants", [row("swap", 1, note="test[a|b]\nline")])
    assert report.main([str(folder)]) == 0
    assert "| swap | 1 | 0 | test[a\\|b] line |" in capsys.readouterr().out


def test_kept_parts_make_the_same_table(folder, capsys):
    parts.write_part("cases", [row("gemm", 10)], part="gw0")
    parts.write_part("fuzz", [row("loaders", 3)])
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
    parts.write_part("mutants", [row("good", 1), *rows])
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
    parts.write_part("cases", [row("gemm", 10)])
    text_of = content if isinstance(content, str) else json.dumps(content)
    (folder / "other.json").write_text(text_of)
    assert report.main([str(folder)]) == 1
    error = capsys.readouterr().err
    assert "other.json" in error and text in error


def test_no_part_at_all_ends_with_1(tmp_path, capsys):
    assert report.main([str(tmp_path)]) == 1
    assert "no part was found" in capsys.readouterr().out


def test_nothing_is_written_unless_asked(tmp_path, monkeypatch):
    monkeypatch.delenv(parts.FOLDER, raising=False)
    assert parts.write_part("cases", [row("gemm", 1)]) is None
