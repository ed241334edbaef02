"""compute-sanitizer over the parts of sanitize.py, each tool and part a process of its own:

    pytest tests/gpu/test_gpu_sanitizer.py -m gpu -n 10

divides them among ten. With $MIXED_GEMM_RELIABILITY each writes what it ran and what was found.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import torch
from sanitize import HOPPER_ONLY, PARTS

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from reliability_parts import write_part

pytestmark = pytest.mark.gpu

TOOL = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
# Reading kernel memory before it is written is an error of ours alone if nobody's writes are
# missed, so initcheck follows the kernels of torch as well.
OURS = ("--kernel-name", "kns=mixed_gemm")
CHECKS: dict[str, tuple[str, ...]] = {
    # An overrun of up to 512 bytes meets no other tensor.
    "memcheck": (*OURS, "--padding", "512", "--leak-check", "no"),
    "racecheck": OURS,
    "initcheck": (),
    "synccheck": OURS,
}
# "========= Invalid read of size 4", then, with more blanks, "=========     at kernel(...)+0x1c0".
HEAD = re.compile(r"^========= (\S.*)\n(?:=========\s+at (.*)\n)?", re.MULTILINE)
PLACE = re.compile(r"\+?0x[0-9a-f]+")
# "ERROR SUMMARY: 3 errors", "RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)".
SUMMARY = re.compile(r"SUMMARY: (?:\d+ hazards? displayed \()?(\d+) errors?")


def kinds(text: str) -> list[str]:
    """Each kind of error and the kernel it came from once, with its count, the most frequent
    first."""
    found = Counter(
        PLACE.sub("", f"{what} at {where}" if where else what).strip()
        for what, where in HEAD.findall(text)
        if not what.startswith("COMPUTE-SANITIZER")
    )
    return [f"{count} x {kind}" for kind, count in found.most_common()]


def run(check: str, part: str) -> tuple[int, str]:
    """(exit status, output)."""
    command = [TOOL, "--tool", check, "--error-exitcode", "99", *CHECKS[check]]
    # All errors, or those of the first kernel hide the others; stacks would be most of the text.
    command += ["--print-limit", "100000", "--show-backtrace", "no"]
    result = subprocess.run(
        [*command, sys.executable, str(Path(__file__).with_name("sanitize.py")), part],
        # torch's allocator would hand out parts of one large block, with nothing between them.
        env={
            **os.environ,
            "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
            "OMP_NUM_THREADS": "1",
            "MIXED_GEMM_SANITIZER": check,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=540,
        check=False,
    )
    return result.returncode, result.stdout


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("part", PARTS)
def test_sanitizer_is_clean(check, part):
    if not Path(TOOL).exists():
        pytest.skip("no compute-sanitizer on this machine")
    if part in HOPPER_ONLY and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("these kernels run on compute capability 9.0 alone")
    begun = time.monotonic()
    status, text = run(check, part)
    report = "\n".join([*kinds(text)[:50], text[-1000:]])
    ran, summary = re.search(r"sanitized (\d+) calls", text), SUMMARY.search(text)
    calls, errors = (int(found[1]) if found else 0 for found in (ran, summary))
    row = {"name": f"{check} {part}", "count": calls, "failed": max(errors, int(status != 0))}
    device, seconds = torch.cuda.get_device_name(), round(time.monotonic() - begun, 1)
    write_part("sanitizers", [row], device=device, part=f"{check}-{part}", seconds=seconds)
    assert status == 0, report
    assert summary and errors == 0, report
    assert calls > 0, report
