"""Processes with engines: what dies is noted and the rest go on, what there was no time for gives
no line, and the results file goes on where a run ended. A module that starts no vLLM stands in.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.serving.gpu import jobs
from benchmarks.serving.gpu.jobs import Group, Job, Line, Point, carry_out, file_name
from benchmarks.serving.gpu.report import Report

MODULE = """
import os, sys, time
from benchmarks.serving.gpu import jobs

def measure(point):
    if point["does"] == "dies":
        os._exit(3)
    if point["does"] == "is killed":
        os.kill(os.getpid(), 9)
    if point["does"] == "ends all":
        os.kill(os.getppid(), 9)
        time.sleep(60)
    if point["does"] == "raises":
        raise ValueError("as asked")
    if point["does"] == "sleeps":
        time.sleep(60)
    return {"process": os.getpid(), "parent": os.getppid(), "variable": os.environ["GIVEN"]}

sys.exit(jobs.main(measure))
"""


@pytest.fixture
def run(tmp_path: Path, repository: Path) -> Any:
    """run(seconds, *what points do) -> the lines noted."""
    (tmp_path / "stand_in.py").write_text(MODULE)
    environment = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{repository}", "GIVEN": "a value"}

    def run(seconds: float, *does: str) -> list[Line]:
        found: list[Line] = []
        points: tuple[Point, ...] = tuple({"number": i, "does": x} for i, x in enumerate(does))
        job = Job("some job", "stand_in", points, environment)
        carry_out(job, tmp_path / "work", time.monotonic() + seconds, found.append)
        return found

    return run


def test_points_of_a_job_are_forks_of_one_process(run: Any) -> None:
    lines = run(60, "runs", "runs")
    assert [x["number"] for x in lines] == [0, 1]
    assert len({x["process"] for x in lines}) == 2 and len({x["parent"] for x in lines}) == 1
    assert lines[0]["variable"] == "a value"


@pytest.mark.parametrize(
    ("does", "error"),
    [
        ("dies", "the process ended with status 3"),
        ("is killed", "the process ended with status -9"),
        ("raises", "ValueError: as asked"),
    ],
)
def test_what_fails_is_noted_and_the_rest_go_on(run: Any, does: str, error: str) -> None:
    before, failed, after = run(60, "runs", does, "runs")
    assert failed == {"number": 1, "does": does, "error": error}
    assert before["parent"] == after["parent"] and (before["number"], after["number"]) == (0, 2)


def test_where_the_process_of_all_points_dies_another_takes_the_rest(run: Any) -> None:
    before, failed, after = run(60, "runs", "ends all", "runs")
    assert failed == {"number": 1, "does": "ends all", "error": "the process ended with status -9"}
    assert before["parent"] != after["parent"] and (before["number"], after["number"]) == (0, 2)


def test_what_there_was_no_time_for_gives_no_line(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "LEAST_SECONDS", 0)
    start = time.monotonic()
    lines = run(5, "runs", "sleeps", "runs")
    assert [x["number"] for x in lines] == [0] and time.monotonic() - start < 20
    monkeypatch.setattr(jobs, "LEAST_SECONDS", 20)
    assert run(10, "runs") == []


def test_a_line_that_was_not_ended_is_not_read(tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    assert jobs.read(lines) == []
    lines.write_text('{"a": 1}\n{"a": 2')
    assert jobs.read(lines) == [{"a": 1}]


def test_a_group_waits_for_all_and_gives_turns(tmp_path: Path) -> None:
    one, other = (Group(tmp_path / "group", ["one", "other"]) for _ in range(2))
    one.arrive("one")
    start = time.monotonic()
    one.wait(0.3)
    assert time.monotonic() - start >= 0.3
    other.arrive("other")
    one.wait(30)
    behind = tmp_path / "behind"
    one.wait(0.3, behind)
    assert time.monotonic() - start >= 0.6
    behind.touch()
    one.wait(30, behind)
    assert time.monotonic() - start < 10
    code = "import fcntl, sys; fcntl.flock(open(sys.argv[1], 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    take = [sys.executable, "-c", code, str(tmp_path / "group" / "lock")]
    subprocess.run(take, check=True)
    one.take_turn()
    told = subprocess.run(take, capture_output=True, text=True, check=False).stderr
    assert "BlockingIOError" in told


def test_names_of_files() -> None:
    assert file_name("W4A16 g128, zero points") == "W4A16-g128--zero-points"


# --- the results file ----------------------------------------------------------------------------

META = {"commit": "abc", "gpu": "H100"}


def report(tmp_path: Path, name: str = "step", **meta: str) -> Report:
    return Report(tmp_path / "out" / "engine.json", name, ("name",), {**META, **meta})


def test_sections_lie_beside_each_other_and_lines_replace_earlier_ones(tmp_path: Path) -> None:
    step, load = report(tmp_path), report(tmp_path, "load")
    step.note({"name": "a", "ms": 1})
    load.note({"name": "a", "ms": 2})
    step.note({"name": "a", "ms": 3})
    step.add(verdicts=[])
    found = json.loads((tmp_path / "out" / "engine.json").read_text())
    assert found["step"] == {"meta": META, "verdicts": [], "rows": [{"name": "a", "ms": 3}]}
    assert found["load"]["rows"] == [{"name": "a", "ms": 2}]


def test_a_run_goes_on_where_the_last_ended_and_tries_again_what_failed(tmp_path: Path) -> None:
    first = report(tmp_path)
    first.note({"name": "a", "ms": 1})
    first.note({"name": "b", "error": "died"})
    second = report(tmp_path)
    assert [second.done({"name": x}) for x in "abc"] == [True, False, False]


@pytest.mark.parametrize("other", [{"commit": "def"}, {"gpu": "H200"}, {"shape": "one layer"}])
def test_lines_of_something_else_go(tmp_path: Path, other: dict[str, str]) -> None:
    report(tmp_path).note({"name": "a", "ms": 1})
    assert not report(tmp_path, **other).done({"name": "a"})
