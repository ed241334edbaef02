"""compute-sanitizer over the boundary subset of sanitize.py."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

TOOL = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
# "========= Invalid read of size 4", then, with more blanks, "=========     at kernel(...)+0x1c0".
HEAD = re.compile(r"^========= (\S.*)\n(?:=========\s+at (.*)\n)?", re.MULTILINE)
PLACE = re.compile(r"\+?0x[0-9a-f]+")


def kinds(text: str) -> list[str]:
    """Each kind of error and the kernel it came from once, with its count, the most frequent
    first."""
    found = Counter(
        PLACE.sub("", f"{what} at {where}" if where else what).strip()
        for what, where in HEAD.findall(text)
        if not what.startswith("COMPUTE-SANITIZER")
    )
    return [f"{count} x {kind}" for kind, count in found.most_common()]


@pytest.mark.parametrize("check", ("memcheck", "racecheck", "initcheck", "synccheck"))
def test_sanitizer_is_clean(check):
    if not Path(TOOL).exists():
        pytest.skip("no compute-sanitizer on this machine")
    command = [TOOL, "--tool", check, "--error-exitcode", "99"]
    # All errors, or those of the first kernel hide the others; stacks would be most of the text.
    command += ["--print-limit", "100000", "--show-backtrace", "no"]
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
    report = "\n".join([*kinds(text)[:50], text[-1000:]])
    assert result.returncode == 0, report
    assert "sanitized" in result.stdout, report
