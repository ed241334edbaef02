"""The memory of a process while a model is quantized: that of the dense weights, of the packed ones
and little more, whatever the C library keeps of what was freed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mixed_gemm import _freed

LAYERS, WIDTH = 300, 1024  # 600 MiB of bfloat16, 155 MiB in 4 bits
PROGRAM = f"""
import torch
import mixed_gemm

def peak():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024

linear = lambda: torch.nn.Linear({WIDTH}, {WIDTH}, bias=False, dtype=torch.bfloat16)
model = torch.nn.Sequential(*(linear() for _ in range({LAYERS})))
before = peak()
mixed_gemm.quantize_(model, "w4a16", progress=False)
print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux says what a process has")
@pytest.mark.skipif(_freed._trim() is None, reason="this C library gives memory back by itself")
def test_quantizing_takes_little_beside_the_weights() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    packed = LAYERS * WIDTH * WIDTH * (4 + 16 / 128) / 8 / 2**20
    # Without looks at the heap it was 1220 MiB.
    assert float(run.stdout) < packed + 4 * _freed.EVERY / 2**20


def test_a_look_at_the_heap_comes_after_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr(_freed, "give_back", lambda: looks.append(1))
    monkeypatch.setattr(_freed, "_pending", 0)
    for _ in range(3):
        _freed.packed(_freed.EVERY // 2)
    assert len(looks) == 1
    _freed.packed(_freed.EVERY // 2)
    assert len(looks) == 2
