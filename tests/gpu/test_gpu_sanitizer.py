"""compute-sanitizer over the boundary subset of sanitize.py."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

TOOL = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"


@pytest.mark.parametrize("check", ("memcheck", "racecheck", "initcheck", "synccheck"))
def test_sanitizer_is_clean(check):
    if not Path(TOOL).exists():
        pytest.skip("no compute-sanitizer on this machine")
    command = [TOOL, "--tool", check, "--error-exitcode", "99"]
    # initcheck must also see who else writes memory, or it takes torch's results for uninitialized.
    command += [] if check == "initcheck" else ["--kernel-name", "kns=mixed_gemm"]
    command += ["--padding", "512"] if check == "memcheck" else []
    result = subprocess.run(
        [*command, sys.executable, str(Path(__file__).with_name("sanitize.py"))],
        env={**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    text = result.stdout + result.stderr
    assert result.returncode == 0, text[-3000:]
    assert "sanitized" in result.stdout
