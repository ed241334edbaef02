"""Our kernel that sums over ranks, with streams of one GPU for ranks. test_gpu_parallel.py has two
GPUs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu
QUEUES = {"CUDA_DEVICE_MAX_CONNECTIONS": "32", "CUDA_MODULE_LOADING": "EAGER"}


@pytest.mark.parametrize("world", [2, 3, 8])
def test_streams_of_one_gpu_get_the_sum_to_the_bit(world: int) -> None:
    tests = Path(__file__).resolve().parents[1]
    folders = (tests / "python", tests / "gpu", tests.parent)
    paths = (*map(str, folders), os.environ.get("PYTHONPATH", ""))
    done = subprocess.run(  # a process of its own: kernels that wait for ever end with it
        [sys.executable, "-m", "support.push_on_one_gpu", str(world)],
        env={**os.environ, **QUEUES, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0 and "done\n" in done.stdout, (done.stdout + done.stderr)[-4000:]
