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


# --- vllm ----------------------------------------------------------------------------------------


@pytest.fixture
def engine(repository: Path, tmp_path: Path) -> Any:
    """engine(arguments) -> (exit status, output, what Python was asked for)."""
    asked = tmp_path / "asked"
    text = (
        f'echo "$MIXED_GEMM_LIBRARY|$PYTHONPATH|$*" >>{asked}\n'
        'case "$*" in *gpu_$SLOW*) exit 75;; *gpu_$FAILING*) exit 1;; esac'
    )
    (tmp_path / "python3").write_text(f"#!/bin/sh\n{text}\n")
    (tmp_path / "python3").chmod(0o755)

    def run(*arguments: str, **more: str) -> tuple[int, str, list[str]]:
        asked.write_text("")
        own = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
        done = subprocess.run(
            ["bash", "tools/gpu_results.sh", "vllm", str(tmp_path), "abc", *arguments],
            cwd=repository,
            env={**os.environ, **own, "SLOW": "none", "FAILING": "none", **more},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr, asked.read_text().splitlines()

    return run


def test_vllm_runs_its_parts_with_options(engine: Any, tmp_path: Path) -> None:
    status, _, lines = engine()
    assert status == 0 and [x.split("gpu_")[1].split()[0] for x in lines] == [
        "check", "step", "load",
    ]  # fmt: skip
    assert all(f"--out {tmp_path}/vllm_engine.json --commit abc" in x for x in lines)
    status, _, (line,) = engine("step", "--", "--variants", "FP8, ours", BUDGET="99")
    assert status == 0 and line.endswith("--seconds 99 --variants FP8, ours")
    status, output, lines = engine("steps")
    assert (status, lines) == (2, []) and "no part 'steps' among check step load" in output


def test_vllm_is_laid_out_from_what_was_carried(engine: Any, tmp_path: Path) -> None:
    _, _, (unpack, check) = engine("check", CARRIED_VLLM="folder", MIXED_GEMM_LIBRARY="")
    target = tmp_path / "serving-gpu" / "vllm"
    assert unpack.endswith(f"tools/carry_vllm.py unpack folder {target}")
    library, path, _ = check.split("|")
    assert library == f"{target}/libmixed_gemm.so" and path.endswith(f":{target}")
    _, _, (_, check) = engine("check", CARRIED_VLLM="folder", MIXED_GEMM_LIBRARY="own.so")
    assert check.startswith("own.so|")


def test_a_part_of_vllm_that_is_not_done_or_fails_is_told(engine: Any, tmp_path: Path) -> None:
    (tmp_path / "before.json").write_text("{}")
    assert engine(SLOW="check", BEFORE=str(tmp_path / "before.json"))[0] == 75
    assert (tmp_path / "vllm_engine.json").read_text() == "{}"
    status, output, lines = engine(SLOW="check", FAILING="step")
    assert status == 1 and "step FAILED with status 1" in output and len(lines) == 3
