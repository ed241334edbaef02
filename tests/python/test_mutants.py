"""What tools/mutants.py relies on: the lines where mistakes are made are those of the sources,
every mistake is made somewhere, and tests are named for it where it can be seen. Whether they see
it is for the gate to say."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tools() -> Any:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import mutant_tests
        from mutation import edit, source
    finally:
        sys.path.pop(0)
    return source, mutant_tests, edit


def test_the_lines_of_every_edit_are_there_once(tools: Any) -> None:
    source, _, edit = tools
    texts = source.mutated()
    assert {one.file for one in source.EDITS} < set(texts)
    wrong = edit.Edit("problem/gemm.cpp", "\nno such line\n", "\nMUTATED(Nothing)\n")
    with pytest.raises(ValueError, match=r"csrc/problem/gemm.cpp: .* found 0 times"):
        wrong.applied((ROOT / "csrc" / wrong.file).read_text(encoding="utf-8"))


def test_every_mistake_is_made_and_no_other(tools: Any) -> None:
    source = tools[0]
    made = {name for one in source.EDITS for name in one.names}
    assert made == {one.name for one in source.MUTANTS}
    nameless = [one for one in source.EDITS if not one.names]  # one fills constant memory
    assert [one.file for one in nameless] == ["grid/device_query_cuda.cpp"]


def test_the_sources_know_of_no_mistake(tools: Any) -> None:
    for path in (ROOT / "csrc").rglob("*"):
        assert not path.is_file() or "MUTA" not in path.read_text(encoding="utf-8"), path


def test_a_tree_with_mistakes_is_written_once(tools: Any, tmp_path: Path) -> None:
    source = tools[0]
    source.write(tmp_path)
    changed = tmp_path / "csrc" / source.EDITS[0].file
    assert "MUTATED(" in changed.read_text(encoding="utf-8")
    assert (tmp_path / "CMakeLists.txt").samefile(ROOT / "CMakeLists.txt")
    times = {x: x.stat().st_mtime_ns for x in (tmp_path / "csrc").rglob("*") if x.is_file()}
    (tmp_path / "csrc" / "of_before.h").touch()
    source.write(tmp_path)
    assert {x: x.stat().st_mtime_ns for x in (tmp_path / "csrc").rglob("*") if x.is_file()} == times


def test_tests_are_named_for_every_mistake_where_it_is_seen(tools: Any) -> None:
    source, rows, _ = tools
    for table, places in ((rows.CPU, ("Cpu", "Both")), (rows.GPU, ("Gpu", "Both"))):
        assert set(table) == {one.name for one in source.MUTANTS if one.seen_by in places}
        for tests in (one for row in table.values() for one in row):
            assert tests.program != "pytest" or (ROOT / tests.arguments[0]).is_file(), tests


def test_there_are_enough_mistakes(tools: Any) -> None:
    assert len(tools[0].MUTANTS) >= 50
