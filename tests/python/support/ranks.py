"""Processes of one group, for tests of what is spread over ranks: gloo on the CPU; NCCL, each on a
GPU of its own, where MIXED_GEMM_TEST_BACKEND=nccl.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

_PYTHON = Path(__file__).resolve().parents[1]
# The packages support and problems, and mixed_gemm where it is not installed.
_PATHS = (str(_PYTHON), str(_PYTHON.parent), str(_PYTHON.parents[1]))
BACKEND = os.environ.get("MIXED_GEMM_TEST_BACKEND", "gloo")
DEVICE = "cuda" if BACKEND == "nccl" else "cpu"


def worlds() -> list[int]:
    """Numbers of ranks that tests try: 1, 2 and 4, as many as there are GPUs where they need one
    each."""
    import torch

    most = torch.cuda.device_count() if BACKEND == "nccl" else 4
    return [world for world in (1, 2, 4) if world <= most]


def run(
    command: list[str],
    folder: Path,
    world: int = 2,
    more: Mapping[str, str] | None = None,
    after: Sequence[str] = (),
) -> list[str]:
    """Run ``python *command RANK STORE *after`` for each rank and return what they printed.

    Args:
        folder: where the ranks meet, a file named "store".
        world: how many; each finds it in the environment as WORLD_SIZE.
        more: for the environment.

    Raises:
        AssertionError: a rank failed, or did not print "done" at its end.
    """
    # One thread each: the machine may have one core. Loopback: gloo would resolve the host's name,
    # which containers without a network cannot.
    paths = os.pathsep.join([*_PATHS, os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    environment |= {"WORLD_SIZE": str(world), **(more or {})}
    if sys.platform == "linux":
        environment["GLOO_SOCKET_IFNAME"] = "lo"
    ranks = [
        subprocess.Popen(
            [sys.executable, *command, str(rank), str(folder / "store"), *after],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(world)
    ]
    try:
        # A rank that fails closes its connection, so the other one fails too, and does not wait.
        outputs = [rank.communicate(timeout=600)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    for rank, output in zip(ranks, outputs, strict=True):
        assert rank.returncode == 0 and "done\n" in output, "\n".join(
            text[-4000:] for text in outputs
        )
    return outputs


def join(rank: int, store: str) -> Any:
    """The mesh of all ranks, from the arguments that :func:`run` gives."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    world = int(os.environ["WORLD_SIZE"])
    if DEVICE == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group(
        BACKEND,
        store=dist.FileStore(store, world),
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=300),
    )
    return init_device_mesh(DEVICE, (world,))


def leave() -> None:
    """End a rank that did all of its work, and not through the interpreter's end.

    DTensor's caches keep the group, and so gloo's threads, alive. One that drops the last reference
    to a collective's tensor by then aborts the process, since a thread that asks for the GIL of a
    finalizing interpreter is ended within a noexcept destructor (seen in a core dump, torch 2.13,
    Python 3.11: one process in 20).
    """
    print("done", flush=True)
    os._exit(0)


def try_all(cases: Mapping[str, Callable[[], object]]) -> None:
    """Run every case, each from the same random numbers, print "NAME: ok" or its traceback on one
    line, and leave the group."""
    import torch

    for name, case in cases.items():
        torch.manual_seed(0)
        try:
            case()
            print(f"{name}: ok", flush=True)
        except Exception:
            print(f"{name}: {traceback.format_exc()!r}", flush=True)
    torch.distributed.destroy_process_group()
    leave()


def torchrun(command: Sequence[str], repository: Path) -> str:
    """Run ``torchrun --nproc-per-node=2 *command`` as a user does, and return what it prints.

    Raises:
        AssertionError: it failed.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(repository)}
    if sys.platform == "linux":
        environment["GLOO_SOCKET_IFNAME"] = "lo"
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--master-addr=127.0.0.1"]
    done = subprocess.run(
        [sys.executable, *launcher, f"--master-port={port}", *command],
        cwd=repository,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
