"""What tools/mutants.py relies on: every mistake of csrc/core/mutant.h is made somewhere, and tests
are named for it where it can be seen. Whether they see it is for the gate to say."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOOK = re.compile(r"MIXED_GEMM_(?:MUTATED|MUTANT|IF_MUTATED)\(\s*(\w+)")


@pytest.fixture(scope="module")
def tools():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import mutant_tests
        import mutants
    finally:
        sys.path.pop(0)
    return mutants, mutant_tests


def test_every_mistake_is_made_and_no_other(tools):
    """Builds without mistakes do not look at the names, so a wrong one compiles there."""
    made = set()
    for path in (ROOT / "csrc").rglob("*"):
        if path.suffix in (".h", ".cuh", ".cpp", ".cu") and path.stem != "mutant":
            made.update(HOOK.findall(path.read_text(encoding="utf-8")))
    assert made == {one.name for one in tools[0].mutants()}


def test_tests_are_named_for_every_mistake_where_it_is_seen(tools):
    module, rows = tools
    for table, places in ((rows.CPU, ("Cpu", "Both")), (rows.GPU, ("Gpu", "Both"))):
        assert set(table) == {one.name for one in module.mutants() if one.seen_by in places}
        for tests in (one for row in table.values() for one in row):
            assert tests.program != "pytest" or (ROOT / tests.arguments[0]).is_file(), tests


def test_there_are_enough_mistakes(tools):
    assert len(tools[0].mutants()) >= 50
