"""tools/gate.py: a step that fails or hangs is seen, ended and told, and the others still run."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import gate
from reliability_parts import FOLDER

WRITE = f"""
import json, os, pathlib
row = {{"name": "x", "count": 3, "failed": 0}}
part = {{"what": "cases", "meta": {{"device": "cpu"}}, "rows": [row]}}
pathlib.Path(os.environ["{FOLDER}"], "cases.json").write_text(json.dumps(part))
"""


def step(name: str, program: str, minutes: float = 1) -> gate.Step:
    return gate.Step(name, minutes, (sys.executable, "-c", program))


@pytest.fixture
def run(monkeypatch, tmp_path, capfd):
    """run(steps, names) -> (exit status, what was printed)."""
    monkeypatch.setattr(gate, "LOGS", tmp_path / "gate")
    monkeypatch.setattr(gate, "PARTS", tmp_path / "reliability")

    def call(steps: list[gate.Step], *names: str) -> tuple[int, str]:
        monkeypatch.setattr(gate, "STEPS", steps)
        status = gate.main(list(names))
        return status, capfd.readouterr().out

    return call


def test_all_steps_run_and_the_table_says_so(run, tmp_path):
    status, out = run([step("one", WRITE), step("two", "print('hello')")])
    assert status == 0, out
    assert "3 calls" in out and "hello" in out
    assert [line.split()[:2] for line in out.splitlines()[-4:-1]] == [
        ["step", "result"],
        ["one", "passed"],
        ["two", "passed"],
    ]
    assert (tmp_path / "gate" / "two.log").read_text() == "hello\n"


def test_a_step_that_fails_does_not_keep_others_from_running(run):
    status, out = run([step("bad", "raise SystemExit(3)"), step("good", WRITE)])
    assert status == 1
    assert "failed (3)" in out and "3 calls" in out


def test_a_step_that_hangs_ends_with_all_that_it_started(run, tmp_path):
    alive = tmp_path / "alive"
    child = f"import time, pathlib; time.sleep(4); pathlib.Path({str(alive)!r}).touch()"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    begun = time.monotonic()
    status, out = run([step("hangs", program, 0.02), step("good", WRITE)])
    assert status == 1 and "took too long" in out
    time.sleep(max(0.0, 5 - (time.monotonic() - begun)))
    assert not alive.exists()


def test_some_steps_by_name(run):
    steps = [step("one", "raise SystemExit(1)"), step("two", WRITE)]
    assert run(steps, "two")[0] == 0
    status, out = run(steps, "three")
    assert status == 2 and "three" in out and "one, two" in out


def test_a_gate_that_tried_nothing_is_no_gate(run):
    status, out = run([step("idle", "pass")])
    assert status == 1 and "no part was found" in out


def test_the_steps_fit_into_the_time_of_ci():
    assert sum(s.limit_minutes for s in gate.STEPS) <= 25  # `make test` takes as long, CI 50
