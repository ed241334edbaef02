"""examples/several_gpus.py over gloo: two processes say what one says, and hold half of it each."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers", minversion="5.24", reason="optional: hf extra")
if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
    pytest.skip("this torch has no gloo", allow_module_level=True)

import mixed_gemm


def test_two_processes_say_what_one_says(repository: Path) -> None:
    folder = repository / "tests" / "data" / "ct_pack_4bit"
    model = mixed_gemm.from_pretrained(folder, dtype="auto")
    wanted = model.generate(torch.tensor([[1, 2, 3]]), max_new_tokens=4, do_sample=False)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(repository)}
    if sys.platform == "linux":
        environment["GLOO_SOCKET_IFNAME"] = "lo"
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--master-addr=127.0.0.1"]
    example = [str(repository / "examples/several_gpus.py"), str(folder), "--tokens=4"]
    run = subprocess.run(
        [sys.executable, *launcher, f"--master-port={port}", *example],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert str(wanted[0].tolist()) in run.stdout, run.stdout
    (sizes,) = re.findall(r"on each rank: ([\d.]+), ([\d.]+)", run.stdout)
    whole = sum(x.nbytes for x in model.parameters() if not hasattr(x, "stored_bytes"))
    whole += sum(x.stored_bytes for x in model.parameters() if hasattr(x, "stored_bytes"))
    assert max(map(float, sizes)) * 1e6 < 0.75 * whole
