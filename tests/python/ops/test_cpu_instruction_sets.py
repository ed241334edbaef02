"""MIXED_GEMM_CPU lowers the instruction set of the CPU kernels; a process chooses once.

The kernels themselves run under every supported set in tests/cpp/test_gemm_cpu.cpp, and through the
op in test_gemm.py; here is what a user of the variable sees.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SLOWEST_FIRST = ("portable", "avx2", "avx512", "avx512_vnni", "avx512_bf16", "avx512_amx")
PRINT_CHOICE = """
import mixed_gemm, torch
print(mixed_gemm.env().build["cpu_instruction_set"])
print(mixed_gemm.plan(1, 64, 64, group_size=-1, dtype="bfloat16", device="cpu").selected)
"""


def run_with(instruction_set: str) -> subprocess.CompletedProcess[str]:
    repository = str(Path(__file__).resolve().parents[3])
    path = os.pathsep.join((repository, os.environ.get("PYTHONPATH", "")))
    return subprocess.run(
        [sys.executable, "-c", PRINT_CHOICE],
        env={**os.environ, "PYTHONPATH": path, "MIXED_GEMM_CPU": instruction_set},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("limit", SLOWEST_FIRST)
def test_variable_lowers_the_instruction_set_and_never_raises_it(limit: str) -> None:
    best = run_with("").stdout.split()[0]
    assert best in SLOWEST_FIRST
    expected = min(limit, best, key=SLOWEST_FIRST.index)
    run = run_with(limit)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == [expected, f"cpu_{expected}"]


def test_unknown_name_is_refused_with_the_names_there_are() -> None:
    run = run_with("sse9")
    assert run.returncode != 0
    assert "MIXED_GEMM_CPU must be one of portable" in run.stderr
    assert "got sse9" in run.stderr
