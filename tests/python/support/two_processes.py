"""Two processes of one group (gloo), for tests of what is spread over ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

WORLD = 2
_PYTHON = Path(__file__).resolve().parents[1]
# The packages support and problems, and mixed_gemm where it is not installed.
_PATHS = (str(_PYTHON), str(_PYTHON.parent), str(_PYTHON.parents[1]))


def run(command: list[str], folder: Path) -> list[str]:
    """Run ``python *command RANK STORE`` for each rank and return what they printed.

    Args:
        folder: where the ranks meet, a file named "store".

    Raises:
        AssertionError: a rank failed, or did not print "done" at its end.
    """
    # One thread each: the machine may have one core. Loopback: gloo would resolve the host's name,
    # which containers without a network cannot.
    paths = os.pathsep.join([*_PATHS, os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    if sys.platform == "linux":
        environment["GLOO_SOCKET_IFNAME"] = "lo"
    ranks = [
        subprocess.Popen(
            [sys.executable, *command, str(rank), str(folder / "store")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        for rank in range(WORLD)
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


def leave() -> None:
    """End a rank that did all of its work, and not through the interpreter's end.

    DTensor's caches keep the group, and so gloo's threads, alive. One that drops the last reference
    to a collective's tensor by then aborts the process, since a thread that asks for the GIL of a
    finalizing interpreter is ended within a noexcept destructor (seen in a core dump, torch 2.13,
    Python 3.11: one process in 20).
    """
    print("done", flush=True)
    os._exit(0)
