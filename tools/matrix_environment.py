"""The common parts of the rows of tools/matrix.py: folders, pip, commands in this checkout, what is
told."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("BUILD", ROOT / "build")).resolve()
FOLDER = BUILD / "matrix"
LIBRARY, CORE_MODULE = "MIXED_GEMM_LIBRARY", "MIXED_GEMM_CORE_MODULE_DIR"
INSTALL_MINUTES = 8


class NotHere(Exception):
    """This machine lacks something."""


class TooSlow(NotHere):
    """A network that another Python would wait for as long."""


class Failed(Exception):
    """Something went wrong."""


def say(text: str) -> None:
    print(f"matrix: {text}", flush=True)


def pip(python: Path, log: Path, *arguments: str) -> str:
    """Run pip; return what it printed, and "" where it succeeded."""
    command = [str(python), "-m", "pip", "install", "--no-cache-dir", "--no-compile", *arguments]
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=INSTALL_MINUTES * 60,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TooSlow(f"pip did not finish in {INSTALL_MINUTES} minutes") from error
    with log.open("a") as file:
        file.write(f"$ {' '.join(command)}\n{done.stdout}\n")
    return done.stdout if done.returncode else ""


def run_in_tree(command: list[str], log: Path, minutes: float) -> tuple[int, str]:
    """(exit status, output) of a command that sees this checkout and the built library; its output
    is printed and goes to the log."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        LIBRARY: os.environ.get(LIBRARY, str(BUILD / "libmixed_gemm.so")),
        CORE_MODULE: os.environ.get(CORE_MODULE, str(BUILD / "python")),
    }
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        cwd=ROOT,
        timeout=minutes * 60,
        check=False,
    )
    print(done.stdout, end="", flush=True)
    with log.open("a") as file:
        file.write(done.stdout)
    return done.returncode, done.stdout
