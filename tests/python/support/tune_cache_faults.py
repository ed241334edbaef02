"""Processes die or meet in the tune cache. This is a program of its own, run by test_tune.py with a
scenario and a folder: it imports once, forks, and prints what it found as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from mixed_gemm.selection import tables, tuned_file

GPU = tables.Gpu("NVIDIA H200", 90, 132)
OLD = tables.Point("float16", "int4", 128, False, 5120, 2560, 1, "dequantize_dense", 1.0)
NEW = replace(OLD, m=2)
LATER = replace(OLD, m=3)
NOBODY = 65534


def in_child(work: Callable[[], None]) -> int:
    """Runs it in a fork. Returns 0, the number of the signal that ended it, or an error's errno."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except OSError as error:
            code = error.errno or 255
        except BaseException as error:
            print(repr(error), file=sys.stderr)
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def dies_at(line: int, work: Callable[[], None]) -> Callable[[], None]:
    """The work, ended by kill -9 before so many lines of our own have run."""
    ours = {tables.__file__, tuned_file.__file__}
    left = [line]

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in ours:
            return None
        if event == "line":
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    def traced() -> None:
        sys.settrace(trace)
        work()

    return traced


def points(path: Path) -> set[int]:
    return {point.m for point in tables.read(path)[1]}


def killed_at_every_line(folder: Path) -> dict[str, Any]:
    path = tables.path_of(GPU, folder)
    outcomes = {"old": 0, "new": 0}
    for line in range(1, 10_000):
        tables.write(path, GPU, [OLD])
        ended = in_child(dies_at(line, lambda: void(tables.save(GPU, [NEW]))))
        found = points(path)
        assert found in ({1}, {1, 2}), found
        tables.save(GPU, [LATER])
        assert points(path) == found | {3}
        names = sorted(p.name for p in folder.iterdir())
        assert names == [path.name, f"{path.name}.lock"], names
        if ended == 0:
            assert found == {1, 2}
            return {"kills": line - 1, **outcomes}
        assert ended == signal.SIGKILL
        outcomes["new" if 2 in found else "old"] += 1
    raise AssertionError("the work never ends")


def killed_beside_a_broken_file(folder: Path) -> dict[str, Any]:
    """A file that cannot be used, of a later version say, is not lost either."""
    path = tables.path_of(GPU, folder)
    aside = path.with_name(path.name + ".unusable")
    for line in range(1, 10_000):
        for left in folder.iterdir():
            left.unlink()
        path.write_text('{"format": 3}')
        ended = in_child(dies_at(line, lambda: void(tables.save(GPU, [NEW]))))
        assert '{"format": 3}' in [p.read_text() for p in (path, aside) if p.exists()]
        if path.exists() and path.read_text() != '{"format": 3}':
            assert points(path) == {2}
        if ended == 0:
            assert points(path) == {2}
            return {"kills": line - 1}
        assert ended == signal.SIGKILL
    raise AssertionError("the work never ends")


def void(_: object) -> None:
    pass


def many_at_once(folder: Path) -> dict[str, Any]:
    writers, saves = 16, 4
    path = tables.path_of(GPU, folder)
    tables.save(GPU, [replace(OLD, m=10_000)])
    done = threading.Event()
    seen = []

    def read_on() -> None:
        while not done.is_set():
            try:
                seen.append(10_000 in points(path))
            except (OSError, ValueError):
                seen.append(False)

    def save_some(writer: int) -> None:
        for i in range(saves):
            tables.save(GPU, [replace(OLD, m=1 + writer * saves + i)])

    children = []
    for writer in range(writers):
        child = os.fork()
        if child == 0:
            code = 1
            with contextlib.suppress(BaseException):
                save_some(writer)
                code = 0
            os._exit(code)
        children.append(child)
    reader = threading.Thread(target=read_on)  # after the forks
    reader.start()
    codes = [os.waitpid(child, 0)[1] for child in children]
    done.set()
    reader.join()
    assert codes == [0] * writers, codes
    assert points(path) == {10_000, *range(1, 1 + writers * saves)}
    return {"reads": len(seen), "failed reads": seen.count(False)}


def full_disk(folder: Path) -> dict[str, Any]:
    path = tables.save(GPU, [OLD])
    whole = path.read_bytes()

    def save() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 9, len(whole) + 9))
        tables.save(GPU, [NEW, LATER])

    ended = in_child(save)
    assert path.read_bytes() == whole
    return {"errno": ended, "files": sorted(p.suffix for p in folder.iterdir())}


def read_only(folder: Path) -> dict[str, Any]:
    """Root writes everywhere, so it becomes nobody first."""
    path = tables.save(GPU, [OLD])
    whole = path.read_bytes()
    is_root = os.geteuid() == 0
    if is_root:
        for name in (folder, *folder.iterdir()):
            os.chown(name, NOBODY, NOBODY)
    folder.chmod(0o500)

    def save() -> None:
        if is_root:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        tables.save(GPU, [NEW])

    ended = in_child(save)
    folder.chmod(0o700)
    assert path.read_bytes() == whole
    return {"errno": ended}


SCENARIOS = (
    killed_at_every_line,
    killed_beside_a_broken_file,
    many_at_once,
    full_disk,
    read_only,
)

if __name__ == "__main__":
    base = Path(os.environ[tables.DIRECTORY])
    found = {}
    for scenario in SCENARIOS:
        inside = base / scenario.__name__
        inside.mkdir()
        os.environ[tables.DIRECTORY] = str(inside)
        found[scenario.__name__] = scenario(inside)
    print(json.dumps(found))
