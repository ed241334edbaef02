"""The lock of a tuning file: among processes and threads, given up in time, freed by a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mixed_gemm.selection.file_lock import locked

HOLD = """
import sys, time
from pathlib import Path
from mixed_gemm.selection.file_lock import locked
with locked(Path(sys.argv[1]), 0):
    print("held", flush=True)
    time.sleep(600)
"""


def test_lock_is_free_again_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    for _ in range(2):
        with locked(path, 0):
            assert path.is_file() and path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(KeyError), locked(path, 0):
        raise KeyError
    with locked(path, 0):
        pass


def test_lock_of_another_process_is_waited_for_and_freed_when_that_is_killed(
    tmp_path: Path, repository: Path
) -> None:
    path = tmp_path / "x.lock"
    environment = {**os.environ, "PYTHONPATH": str(repository)}
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as holder:
        try:
            assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
            begun = time.monotonic()
            held = pytest.raises(TimeoutError, match=r"held by another process: .*x\.lock")
            with held, locked(path, 0.2):
                pass
            assert 0.2 <= time.monotonic() - begun < 5
        finally:
            holder.send_signal(signal.SIGKILL)
            holder.wait()
    with locked(path, 5):
        pass


def test_threads_exclude_each_other(tmp_path: Path) -> None:
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(5):
            with locked(tmp_path / "x.lock", 60):
                inside += 1
                most = max(most, inside)
                time.sleep(0.001)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_a_link_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"), locked(tmp_path / "x.lock", 0):
        pass
    assert not (tmp_path / "elsewhere").exists()
