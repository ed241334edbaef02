"""Do the tests find the mistakes of tools/mutation/?

    python tools/mutants.py --cpu [--build build/mutants] [--json FILE] [NAME...]
    python tools/mutants.py --gpu --library FILE [--jobs 8] [--json FILE] [NAME...]
    python tools/mutants.py --write FOLDER

--cpu builds the library without CUDA and with every mistake in it, runs the tests of
tools/mutant_tests.py as it is, which must pass, and then once for each mistake that needs no GPU,
until a test fails. --gpu does the same on a GPU machine with a library that was built from what
--write makes: a tree as this one, whose csrc/ can make every mistake. A mistake that no test finds,
or that no test is named for, is an error.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import mutant_tests
from mutant_tests import Tests
from mutation import source
from mutation.rows import MUTANTS, Mutant
from reliability_parts import write_part

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 300  # seconds of one run of tests: a mistake may make a kernel wait for ever
GTEST_FAILED = re.compile(r"^\[  FAILED  \] (\S+?)(?:,| \(|$)", re.MULTILINE)
PYTEST_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+)$", re.MULTILINE)  # the test - why


@dataclass(frozen=True)
class Verdict:
    """killed_by: the test that failed and, of pytest, why, or what became of its program; empty:
    none did."""

    name: str
    what: str
    killed_by: str
    seconds: float


class NoVerdictError(Exception):
    """The tests did not run, which says nothing about a mistake."""


class Runner:
    """Tests of one build, with one mistake or none in it."""

    def __init__(self, library: Path, programs: Path | None) -> None:
        self.library = library.resolve()
        self.programs = programs

    def command(self, tests: Tests) -> list[str]:
        if tests.program == "pytest":
            options = ["-x", "-q", "-p", "no:cacheprovider", "--tb=line", "-rfE"]
            return [sys.executable, "-m", "pytest", *options, *tests.arguments]
        assert self.programs is not None, tests
        options = ["--gtest_brief=1", "--gtest_fail_fast"]
        return [
            str(self.programs / tests.program),
            f"--gtest_filter={tests.arguments[0]}",
            *options,
        ]

    def environment(self, mutant: str) -> dict[str, str]:
        path = os.environ.get("PYTHONPATH")
        changes = {
            "PYTHONPATH": os.pathsep.join([str(ROOT), *([path] if path else [])]),
            "MIXED_GEMM_LIBRARY": str(self.library),
            "MIXED_GEMM_MUTANT": mutant,
            "OMP_WAIT_POLICY": "PASSIVE",
            "PYTHONDONTWRITEBYTECODE": "1",
            "MIXED_GEMM_RELIABILITY": "",  # failures that mistakes cause belong into no table
        }
        if self.programs is not None:
            changes["MIXED_GEMM_CORE_MODULE_DIR"] = str(self.library.parent / "python")
        return os.environ | changes

    def failure(self, tests: Tests, mutant: str) -> str:
        """Return the first test that fails, or how its program ended; empty where all pass."""
        command = self.command(tests)
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=self.environment(mutant),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"{tests.program} {' '.join(tests.arguments)}: not done after {SECONDS} s"
        pattern = PYTEST_FAILED if tests.program == "pytest" else GTEST_FAILED
        failed = pattern.findall(done.stdout)
        if done.returncode == 0:
            if re.search(r"^\[==========\] 0 tests", done.stdout, re.MULTILINE):
                raise NoVerdictError(f"{' '.join(command)}: no tests")
            return ""
        if done.returncode < 0:
            signal = -done.returncode
            return f"{tests.program} {' '.join(tests.arguments)}: ended by signal {signal}"
        if done.returncode == 1 and failed:
            return str(failed[0])[:200]
        text = (done.stdout + done.stderr)[-2000:]
        raise NoVerdictError(f"{' '.join(command)}: exit status {done.returncode}\n{text}")


def verdict(runner: Runner, mutant: Mutant, rows: dict[str, tuple[Tests, ...]]) -> Verdict:
    begin = time.monotonic()
    killed_by = ""
    for tests in rows[mutant.name]:
        try:
            killed_by = runner.failure(tests, mutant.name)
        except NoVerdictError as error:
            print(f"{mutant.name}: {error}", flush=True)
        if killed_by:
            break
    seconds = round(time.monotonic() - begin, 1)
    print(
        f"{mutant.name:20} {seconds:6.1f} s  {killed_by or 'SURVIVED: ' + mutant.what}", flush=True
    )
    return Verdict(mutant.name, mutant.what, killed_by, seconds)


def healthy(runner: Runner, rows: Sequence[Tests], jobs: int) -> list[str]:
    """Run the tests without a mistake, and return those that fail."""
    with ThreadPoolExecutor(jobs) as pool:
        failures = pool.map(lambda tests: runner.failure(tests, ""), dict.fromkeys(rows))
    return [failure for failure in failures if failure]


def build(folder: Path, jobs: int) -> None:
    sources = folder / "mutated"
    source.write(sources)
    options = ["-DMIXED_GEMM_CUDA=OFF", "-DMIXED_GEMM_BUILD_TESTS=ON"]
    python = f"-DPython_EXECUTABLE={sys.executable}"
    configure = ["cmake", "-S", str(sources), "-B", str(folder), "-G", "Ninja", python, *options]
    subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", str(folder), "-j", str(jobs)], check=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--cpu", action="store_true", help="mistakes that tests without a GPU find")
    where.add_argument("--gpu", action="store_true", help="mistakes that tests on a GPU find")
    where.add_argument("--write", type=Path, help="a folder for sources that can make them")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "mutants")
    parser.add_argument("--library", type=Path, help="built from what --write made, for --gpu")
    parser.add_argument("--device", default="gpu", help="its name in the report, for --gpu")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="where to write the verdicts")
    parser.add_argument("--no-build", action="store_true", help="the build folder is up to date")
    parser.add_argument("names", nargs="*", help="of mistakes; all of them by default")
    options = parser.parse_args(argv)
    if options.write is not None:
        source.write(options.write)
        return 0
    begin = time.monotonic()
    if options.gpu and options.library is None:
        parser.error("--gpu needs --library")

    rows = mutant_tests.GPU if options.gpu else mutant_tests.CPU
    seen_by = ("Gpu" if options.gpu else "Cpu", "Both")
    chosen = [one for one in MUTANTS if one.seen_by in seen_by]
    if {one.name for one in chosen} != set(rows):
        names = sorted({one.name for one in chosen} ^ set(rows))
        parser.error(f"rows.py and mutant_tests.py do not name the same: {names}")
    if unknown := set(options.names) - set(rows):
        parser.error(f"unknown: {sorted(unknown)}")
    chosen = [one for one in chosen if not options.names or one.name in options.names]

    if options.cpu:
        if not options.no_build:
            build(options.build, options.jobs)
        runner = Runner(options.build / "libmixed_gemm.so", options.build / "tests" / "cpp")
    else:
        runner = Runner(options.library, None)
    built = time.monotonic()
    try:
        failures = healthy(runner, [t for one in chosen for t in rows[one.name]], options.jobs)
    except NoVerdictError as error:
        failures = [str(error)]
    if failures:
        print("without a mistake, these fail:", *failures, sep="\n  ")
        return 1
    with ThreadPoolExecutor(options.jobs) as pool:
        verdicts = list(pool.map(lambda one: verdict(runner, one, rows), chosen))

    survivors = [one.name for one in verdicts if not one.killed_by]
    report = {
        "where": "gpu" if options.gpu else "cpu",
        "mutants": len(verdicts),
        "killed": len(verdicts) - len(survivors),
        "survivors": survivors,
        "seconds_to_build": round(built - begin, 1),
        "seconds_to_test": round(time.monotonic() - built, 1),
        "verdicts": [asdict(one) for one in verdicts],
    }
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    write_part(
        "mutants",
        [
            {"name": v.name, "count": 1, "failed": int(not v.killed_by), "note": v.killed_by[:80]}
            for v in verdicts
        ],
        device=options.device if options.gpu else "cpu",
        seconds=round(time.monotonic() - begin, 1),
    )
    print({k: v for k, v in report.items() if k != "verdicts"})
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
