"""The checks that a change must pass beyond `make test`: sanitizers, mutants, fuzzing.

    python tools/gate.py [STEP...]       all of them, or those that are named

Every step runs, also after one that failed, and is ended where it takes longer than its limit. Its
output goes to build/gate/STEP.log as well. At the end stand a table of the steps and one of what
they tried; the exit status is 1 if anything failed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("BUILD", ROOT / "build")).resolve()
LOGS = BUILD / "gate"
PARTS = BUILD / "reliability"  # counts of what the steps tried, for tools/pages/reliability.py


@dataclass(frozen=True)
class Step:
    name: str
    limit_minutes: float
    command: tuple[str, ...]


# Limits are for two cores that compile everything anew; they leave `.ci/run` below 75 minutes.
STEPS = (
    Step("asan", 12, (sys.executable, "tools/sanitize_cpu.py", "address")),
    Step("tsan", 3, (sys.executable, "tools/sanitize_cpu.py", "thread")),
    Step("mutants", 7, (sys.executable, "tools/mutants.py", "--cpu")),
    Step("fuzz", 3, (sys.executable, "tests/fuzz/run.py", "60", str(LOGS))),
)


@dataclass(frozen=True)
class Outcome:
    step: Step
    result: str
    seconds: float

    @property
    def failed(self) -> bool:
        return self.result != "passed"


def environment() -> dict[str, str]:
    """A step finds the library and this tree without installing anything, and has a place for its
    numbers."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {
        **os.environ,
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",
        "MIXED_GEMM_RELIABILITY": str(PARTS),
        "MIXED_GEMM_LIBRARY": os.environ.get("MIXED_GEMM_LIBRARY", str(BUILD / "libmixed_gemm.so")),
    }


def run(step: Step) -> Outcome:
    print(f"=== {step.name}: {' '.join(step.command)}", flush=True)
    begun = time.monotonic()
    log = LOGS / f"{step.name}.log"
    # A session of its own lets what the step started end with it.
    process = subprocess.Popen(
        ["bash", "-o", "pipefail", "-c", '"$@" 2>&1 | tee "$0"', str(log), *step.command],
        cwd=ROOT,
        env=environment(),
        start_new_session=True,
    )
    try:
        status = process.wait(timeout=step.limit_minutes * 60)
        result = "passed" if status == 0 else f"failed ({status})"
    except subprocess.TimeoutExpired:
        result = "took too long"
    finally:
        end(process)
    return Outcome(step, result, time.monotonic() - begun)


def end(process: subprocess.Popen[bytes]) -> None:
    """End all that the step started and left behind."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def table(outcomes: list[Outcome]) -> str:
    rows = [("step", "result", "minutes", "limit")]
    rows += [
        (o.step.name, o.result, f"{o.seconds / 60:.1f}", f"{o.step.limit_minutes:g}")
        for o in outcomes
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    return "\n".join(
        "  ".join(f"{cell:{w}}" for cell, w in zip(row, widths, strict=True)) for row in rows
    )


def main(names: list[str]) -> int:
    unknown = set(names) - {step.name for step in STEPS}
    if unknown:
        print(f"no step {', '.join(sorted(unknown))}: {', '.join(s.name for s in STEPS)}")
        return 2
    shutil.rmtree(PARTS, ignore_errors=True)
    for folder in (LOGS, PARTS):
        folder.mkdir(parents=True, exist_ok=True)
    outcomes = [run(step) for step in STEPS if not names or step.name in names]
    print()
    report = [sys.executable, "-m", "tools.pages.reliability", str(PARTS)]
    reported = subprocess.run(report, cwd=ROOT, check=False).returncode == 0
    print(f"\n{table(outcomes)}\nlogs: {LOGS}")
    return 0 if reported and not any(o.failed for o in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
