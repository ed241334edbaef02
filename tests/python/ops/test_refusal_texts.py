"""No refusal changes its text, its type or its place among the rules without a line in the diff of
tests/data/refusals.txt."""

from __future__ import annotations

import difflib

from support import refusals


def test_the_texts_are_those_of_the_file() -> None:
    wanted = refusals.FILE.read_text(encoding="utf-8").splitlines()
    changed = list(difflib.unified_diff(wanted, list(refusals.lines()), n=0, lineterm=""))
    assert not changed, "\n".join(changed[:20])
