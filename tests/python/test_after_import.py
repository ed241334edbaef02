"""Actions that wait for somebody else's import."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from mixed_gemm._after_import import after_import

NAME = "imported_by_a_test_of_mixed_gemm"


def test_every_action_runs_once_behind_the_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{NAME}.py").write_text("value = 1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    ran: list[str] = []

    def first() -> None:
        assert sys.modules[NAME].value == 1
        ran.append("first")

    def second() -> None:
        ran.append("second")

    for action in (first, second, first):
        after_import(NAME, action)
    assert ran == []
    try:
        module = importlib.import_module(NAME)
        assert sorted(ran) == ["first", "second"]
        assert module.__spec__ is not None and module.__loader__ is module.__spec__.loader
        assert type(module.__loader__).__name__ == "SourceFileLoader"
        after_import(NAME, first)
        assert sorted(ran) == ["first", "first", "second"]
    finally:
        sys.modules.pop(NAME, None)
