"""tools/gpu_results.sh reliability: the parts that are asked for run, and what fails is not lost,
also where it runs beside the rest. Programs stand in for Python and for the GPU's driver."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

PARTS = ("push", "sweep", "pairs", "sizes", "checked", "stress", "mutants", "sanitizers")
PROGRAMS = {  # what a part starts, as nothing else does
    "push": "test_gpu_push.py",
    "sweep": "--count 20000",
    "pairs": "--pairs",
    "sizes": "sizes.py",
    "checked": "stages checked",
    "stress": "stress.py",
    "mutants": "mutants.py",
    "sanitizers": "test_gpu_sanitizer.py",
}


@pytest.fixture
def reliability(repository: Path, tmp_path: Path) -> Any:
    """reliability(parts, failing) -> (exit status, output, what Python was asked for)."""
    asked = tmp_path / "asked"
    note = f'echo "$MIXED_GEMM_LIBRARY $*" >>{asked}'
    fail = 'case "$*" in *$FAILING*) exit 1; esac'
    for name, text in (("nvidia-smi", "echo GPU"), ("python3", f"{note}; {fail}")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "build.so").touch()

    def run(*parts: str, failing: str = "none", **environment: str) -> tuple[int, str, list[str]]:
        asked.write_text("")
        done = subprocess.run(
            ["bash", "tools/gpu_results.sh", "reliability", str(tmp_path), "abc", *parts],
            cwd=repository,
            env={
                **os.environ,
                "PATH": f"{tmp_path}:{os.environ['PATH']}",
                "FAILING": failing,
                "MIXED_GEMM_LIBRARY": "plain.so",
                "MIXED_GEMM_CHECKED": str(tmp_path / "build.so"),
                "MIXED_GEMM_MUTATED": str(tmp_path / "build.so"),
                **environment,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr, asked.read_text().splitlines()

    return run


def started(lines: list[str]) -> set[str]:
    found = {part for part, text in PROGRAMS.items() if any(text in line for line in lines)}
    assert len(found) == len(lines)
    return found


def test_all_parts_run_and_the_sums_over_ranks_alone(reliability: Any) -> None:
    status, _, lines = reliability()
    assert status == 0 and started(lines) == set(PARTS)
    assert PROGRAMS["push"] in lines[0]
    for line in lines:
        assert line.startswith("plain.so ") != (PROGRAMS["checked"] in line), line


@pytest.mark.parametrize("part", PARTS)
def test_a_part_by_name(reliability: Any, part: str) -> None:
    status, _, lines = reliability(part)
    assert (status, started(lines)) == (0, {part})


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_fails_is_told_and_the_rest_runs(reliability: Any, part: str) -> None:
    status, output, lines = reliability(failing=PROGRAMS[part])
    assert status == 1 and f"{part} FAILED" in output
    assert started(lines) == set(PARTS)


def test_what_cannot_run_is_refused_before_anything_starts(reliability: Any) -> None:
    status, output, lines = reliability("sweep", "swep")
    assert (status, lines) == (2, []) and "no part 'swep' among push sweep" in output
    for part, variable in (("checked", "MIXED_GEMM_CHECKED"), ("mutants", "MIXED_GEMM_MUTATED")):
        status, output, lines = reliability(part, **{variable: ""})
        assert (status, lines) == (2, [])
        assert f"{part}: {variable} must name a build of its own" in output
        assert reliability("sweep", **{variable: ""})[0] == 0
