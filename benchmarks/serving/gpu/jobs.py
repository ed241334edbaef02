"""Engines of vLLM in processes of their own: what one of them breaks does not reach the next, and
when the time is up, what was measured is kept. A process imports vLLM once, in as many seconds as
an engine takes to start, and each of its points runs in a fork of it.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import multiprocessing
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import processes

Point = dict[str, Any]
Line = dict[str, Any]
LEAST_SECONDS = 20  # seconds in which an engine might start
POLL_SECONDS = 0.1
RAISED = 75  # the exit status of a fork whose point raised, and has its line


@dataclass(frozen=True)
class Job:
    """The points that one process measures, one after the other; each gives a line.

    Attributes:
        module: that is started; it calls :func:`main`.
    """

    name: str
    module: str
    points: tuple[Point, ...]
    environment: dict[str, str] = field(default_factory=dict)


def file_name(text: str) -> str:
    """Return a text without what the name of a file must not have."""
    return "".join(x if x.isalnum() else "-" for x in text)


# --- in the process that starts them -------------------------------------------------------------


def carry_out(job: Job, work: Path, end: float, note: Callable[[Line], None]) -> None:
    """Run a job until its points are done or it is ``end`` on the monotonic clock. Where its
    process dies, the point that it was at is noted with that, and the rest go on in another one.
    Points for which there was no time give no line.

    Args:
        work: where lines and logs go.
    """
    left = list(job.points)
    while left and (seconds := end - time.monotonic()) > LEAST_SECONDS:
        file = file_name(job.name)
        lines = work / "lines" / f"{file}-{len(left)}.jsonl"
        status = _process(job, left, lines, work / "logs" / f"{file}.log", seconds)
        found = read(lines)
        for line in found:
            note(line)
        if status is None:
            return
        left = left[len(found) :]
        if left:
            note({**left.pop(0), "error": f"the process ended with status {status}"})


def _process(job: Job, points: list[Point], lines: Path, log: Path, seconds: float) -> int | None:
    """Return the exit status of a process; None where its time was up."""
    lines.parent.mkdir(parents=True, exist_ok=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    lines.unlink(missing_ok=True)
    command = [sys.executable, "-m", job.module, "--points", json.dumps(points),
               "--lines", str(lines)]  # fmt: skip
    with log.open("a") as out:
        process = subprocess.Popen(
            command, env={**os.environ, **job.environment}, stdout=out, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        processes.end(process, processes.AT_ONCE)


def read(lines: Path) -> list[Line]:
    """Read what a process wrote, without a line that it did not end."""
    if not lines.is_file():
        return []
    return [json.loads(x) for x in lines.read_text().splitlines(keepends=True) if x.endswith("\n")]


# --- in such a process ---------------------------------------------------------------------------


def answer(points: list[Point], lines: Path, measure: Callable[[Point], Line]) -> int:
    """Measure points one after the other, each in a fork of this process, which keeps off the GPU.
    Return the exit status: 1 where a point raised, or its process died."""
    context: Any = multiprocessing.get_context("fork")
    failed = False
    for point in points:
        process = context.Process(target=_answer_one, args=(point, lines, measure))
        process.start()
        process.join()
        if process.exitcode not in (0, RAISED):
            error = f"the process ended with status {process.exitcode}"
            _write({**point, "error": error}, lines)
        failed = failed or process.exitcode != 0
    return int(failed)


def _answer_one(point: Point, lines: Path, measure: Callable[[Point], Line]) -> None:
    try:
        line = {**point, **measure(point)}
    except Exception as error:
        traceback.print_exc()
        line = {**point, "error": f"{type(error).__name__}: {error}"[:1500]}
    _write(line, lines)
    if "error" in line:
        sys.exit(RAISED)


def _write(line: Line, lines: Path) -> None:
    with lines.open("a") as out:
        out.write(json.dumps(line) + "\n")


def main(measure: Callable[[Point], Line], prepare: Callable[[], None] = lambda: None) -> int:
    """Run the program of such a process.

    Args:
        prepare: imports what every point needs. It must not touch a GPU: CUDA does not outlive a
            fork.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=json.loads, required=True)
    parser.add_argument("--lines", type=Path, required=True)
    given = parser.parse_args()
    prepare()
    return answer(given.points, given.lines, measure)


class Group:
    """Processes that start together, since compiling takes the CPU, and are timed one after
    another while the others stand still.

    Attributes:
        folder: of this group alone. names: of its members.
    """

    def __init__(self, folder: Path, names: list[str]) -> None:
        self.folder, self.names = folder, names
        folder.mkdir(parents=True, exist_ok=True)

    def arrive(self, name: str) -> None:
        """Say that a member has started, or never will."""
        (self.folder / str(self.names.index(name))).touch()

    def wait(self, seconds: float, behind: Path | None = None) -> None:
        """Wait until all have arrived and the file ``behind`` is there, or seconds are over."""
        awaited = [self.folder / str(i) for i in range(len(self.names))]
        awaited += [] if behind is None else [behind]
        end = time.monotonic() + seconds
        while time.monotonic() < end and not all(x.exists() for x in awaited):
            time.sleep(POLL_SECONDS)

    def take_turn(self) -> None:
        """Wait until no other member has it; this process has it then until its end, so that the
        next is not disturbed by how an engine goes down."""
        self._turn = (self.folder / "lock").open("w")
        fcntl.flock(self._turn, fcntl.LOCK_EX)
