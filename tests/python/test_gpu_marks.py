"""Every test of tests/gpu has the mark by which the GPU machine chooses what it runs: one without
it runs nowhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def test_the_mark_leaves_none_out(repository: Path) -> None:
    options = ["-p", "no:cacheprovider", "--collect-only", "-q", "-m", "not gpu"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "tests/gpu"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    assert [line for line in done.stdout.splitlines() if "::" in line] == []
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, done.stdout + done.stderr
    assert "deselected" in done.stdout
