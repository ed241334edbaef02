"""Engines of vLLM in processes of their own: what one of them breaks does not reach the next, and
when the time is up, what was measured is kept.
"""

from __future__ import annotations

import argparse
import fcntl
import json
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
    """Run a job until its points are done or it is ``end`` on the monotonic clock. A point at which
    the process dies is noted with its error, and the rest go on in another one. Points for which
    there was no time give no line.

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
        failed = bool(found) and "error" in found[-1]
        left = left[len(found) :]
        if left and not failed:
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
    """Measure points one after the other; the exit status. The first that raises is the last: a
    fault of the GPU stays with its process."""
    for point in points:
        try:
            line = {**point, **measure(point)}
        except Exception as error:
            traceback.print_exc()
            line = {**point, "error": f"{type(error).__name__}: {error}"[:1500]}
        with lines.open("a") as out:
            out.write(json.dumps(line) + "\n")
        if "error" in line:
            return 1
    return 0


def main(measure: Callable[[Point], Line]) -> int:
    """Run the program of such a process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=json.loads, required=True)
    parser.add_argument("--lines", type=Path, required=True)
    given = parser.parse_args()
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

    def wait(self, seconds: float) -> None:
        """Wait until all have arrived, or seconds are over."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if all((self.folder / str(i)).exists() for i in range(len(self.names))):
                return
            time.sleep(POLL_SECONDS)

    def take_turn(self) -> None:
        """Wait until no other member has it; this process has it then until its end, so that the
        next is not disturbed by how an engine goes down."""
        self._turn = (self.folder / "lock").open("w")
        fcntl.flock(self._turn, fcntl.LOCK_EX)
