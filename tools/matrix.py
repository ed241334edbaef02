"""The library that was built once, under the oldest and the newest torch and Python it is for.

    python tools/matrix.py                   the rows of CELLS, and the newest libraries
    python tools/matrix.py 2.12.0@3.12 ...   others: TORCH@PYTHON

For each: an interpreter of this machine, a virtual environment below build/matrix with that torch
and what the package depends on, tests/smoke.py in it. Two rows hold every value once; a library
without Python in it, on torch's stable ABI, gives their combinations nothing to disagree about. The
row of the newest libraries runs tests with the torch in use (tools/matrix_newest.py).

What a machine does not have (an interpreter, a wheel that pip may take, room for it, a network that
brings it in INSTALL_MINUTES) is told with the reason and is no failure; whatever else goes wrong is
one. The CPU build of torch is taken where an index with it is reached, else PyPI's, which brings
CUDA: 3 GB to download and 7 GB on the disk until the row is done. The output of pip and of the test
is in build/matrix/*.log.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import matrix_newest
from matrix_environment import FOLDER, ROOT, Failed, NotHere, TooSlow, pip, run_in_tree, say
from requirements import requirements

SMOKE = ROOT / "tests" / "smoke.py"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"  # as in tools/setup_env.sh
ROOM_GB = 10  # that PyPI's torch and what it brings may take, 7 of them for a Python
TEST_MINUTES, ASK_SECONDS = 5, 60
# pip says these of a machine that may not take a version, or has none of it.
HELD = re.compile(r"The user requested \(constraint\) (\S+)")
NO_WHEEL = "No matching distribution found"
NO_INDEX = "(from versions: none)"  # so no index answered: torch has wheels for all of CELLS


@dataclass(frozen=True)
class Cell:
    torch: str
    pythons: tuple[str, ...]  # the first that this machine has, and torch a wheel for
    or_older: bool = False  # where pip may not take this torch: the newest that it may

    @property
    def name(self) -> str:
        return f"torch {self.torch}, Python {self.pythons[0]}"


def pinned(group: str) -> str:
    """The version of torch that a dependency group of pyproject.toml asks for."""
    (requirement,) = requirements([group])
    return requirement.removeprefix("torch==")


CELLS = (
    Cell(pinned("oldest-torch"), ("3.10",)),
    # torch has wheels for all of these; a machine rarely has the newest Python.
    Cell(pinned("newest-torch"), ("3.15", "3.14", "3.13", "3.12", "3.11"), or_older=True),
)
OTHERS = ((matrix_newest.NAME, matrix_newest.run),)


def interpreters(version: str) -> Iterator[Path]:
    """Where a Python may be: among those of pyenv, or on PATH; but no shim of pyenv, which may have
    nothing behind it, and looks for itself for ever where PATH names its folder another way."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from pyenv.glob(f"versions/{version}.*/bin/python")
    on_path = shutil.which(f"python{version}")
    if on_path and Path(on_path).parent != pyenv / "shims":
        yield Path(on_path)


def find_python(version: str) -> Path:
    ask = "import sys, ensurepip, venv; print('%d.%d' % sys.version_info[:2])"
    for path in interpreters(version):
        done = subprocess.run(
            [path, "-c", ask], capture_output=True, text=True, timeout=ASK_SECONDS, check=False
        )
        if done.stdout.strip() == version:
            return path
    raise NotHere(f"no python{version} with venv and ensurepip, on PATH or of pyenv")


def install(python: Path, log: Path, cell: Cell) -> None:
    """Raises NotHere or Failed."""
    cpu_build = f"torch=={cell.torch}+cpu"
    elsewhere = ("--extra-index-url", CPU_INDEX, "--timeout", "15", "--retries", "1")
    if pip(python, log, cpu_build) and pip(python, log, cpu_build, *elsewhere):
        say(f"no CPU build of torch {cell.torch} is reached; PyPI's brings CUDA")
        install_from_pypi(python, log, cell)
    if pip(python, log, *requirements(["runtime"])):
        raise Failed("pip could not install what mixed_gemm depends on")


def install_from_pypi(python: Path, log: Path, cell: Cell) -> None:
    """Raises NotHere or Failed."""
    if (free := shutil.disk_usage(FOLDER).free / 1e9) < ROOM_GB:
        raise NotHere(f"{free:.0f} GB of disk are free, and torch with CUDA wants {ROOM_GB}")
    output = pip(python, log, f"torch=={cell.torch}")
    if cell.or_older and (held := HELD.search(output)):
        say(f"pip of this machine is held to {held[1]}: the newest torch that it may take")
        output = pip(python, log, "torch")
    if held := HELD.search(output):
        raise NotHere(f"pip of this machine is held to {held[1]}")
    if NO_WHEEL in output and NO_INDEX not in output:
        raise NotHere(f"no wheel of torch {cell.torch} where pip looks")
    if output:
        raise Failed("pip could not install torch")


def smoke(python: Path, log: Path) -> str:
    """The first line of tests/smoke.py: what it ran with. Raises Failed."""
    status, output = run_in_tree([str(python), str(SMOKE)], log, TEST_MINUTES)
    if status:
        raise Failed(f"tests/smoke.py ended with {status}")
    return output.splitlines()[0]


def run_with(cell: Cell, version: str) -> str:
    """Return what passed. Raises NotHere or Failed."""
    base = find_python(version)
    home = FOLDER / f"{cell.torch}-{version}"
    log = home.with_suffix(home.suffix + ".log")
    log.unlink(missing_ok=True)
    shutil.rmtree(home, ignore_errors=True)
    say(f"torch {cell.torch} with {base}")
    try:
        subprocess.run([base, "-m", "venv", home], check=True)
        python = home / "bin" / "python"
        install(python, log, cell)
        return smoke(python, log)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise Failed(str(error)) from error
    finally:
        shutil.rmtree(home, ignore_errors=True)


def run(cell: Cell) -> tuple[str, str]:
    """("passed" or "failed" or "not here", with what or why)."""
    reasons: list[str] = []
    for version in cell.pythons:
        try:
            what = run_with(cell, version)
            if cell.or_older and f"torch {cell.torch}" not in what:
                reasons.append(f"torch {cell.torch}: pip of this machine may not take it")
            return "passed", "; ".join([what, *(f"not here: {reason}" for reason in reasons)])
        except NotHere as error:
            say(f"torch {cell.torch}, Python {version}: not here: {error}")
            reasons.append(f"Python {version}: {error}")
            if isinstance(error, TooSlow):
                break
        except Failed as error:
            return "failed", f"Python {version}: {error}; logs: {FOLDER}"
    return "not here", "; ".join(reasons)


def cell_of(argument: str) -> Cell:
    torch, _, python = argument.partition("@")
    if not torch or not python:
        sys.exit(f"matrix: must be TORCH@PYTHON, as 2.12.0@3.12, got {argument!r}")
    return Cell(torch, (python,))


def main(arguments: list[str]) -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    cells = tuple(map(cell_of, arguments)) or CELLS
    outcomes = [(cell.name, *run(cell)) for cell in cells]
    outcomes += [(name, *run_row(FOLDER)) for name, run_row in OTHERS if not arguments]
    print()
    for name, result, what in outcomes:
        say(f"{name}: {result}: {what}")
    counts = [sum(result == wanted for _, result, _ in outcomes) for wanted in ("passed", "failed")]
    print(f"{counts[0]} passed, {counts[1]} failed, {len(outcomes) - sum(counts)} skipped")
    return int(counts[1] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
