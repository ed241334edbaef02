"""Help, the version and wrong usage are answered without torch: by the package as it is installed,
``mixed_gemm_cli``, whose parent is not ``mixed_gemm``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import mixed_gemm
from mixed_gemm.quantization import select
from mixed_gemm.selection import benchmark, tuning
from mixed_gemm.weights.scheme import SCHEMES

pytest.importorskip("typer", reason="the extra cli is not installed: pip install typer rich")
from mixed_gemm.cli.app import COMMANDS

# What takes the time: torch, and rich's formatting of what is plain text here.
HEAVY = ("mixed_gemm", "numpy", "rich", "safetensors", "torch", "transformers")
MOST_MODULES = 350  # of Python and typer; torch alone imports a thousand
RUN = f"""
import json, sys
sys.argv[0] = "mixed-gemm"
from mixed_gemm_cli import main
try:
    main()
finally:
    heavy = sorted({{name.split(".")[0] for name in sys.modules}} & set({HEAVY!r}))
    print(json.dumps([len(sys.modules), heavy]), file=sys.stderr)
"""


class Answer(NamedTuple):
    status: int
    stdout: str
    errors: str
    imported: list[str]  # of HEAVY
    modules: int


@pytest.fixture
def mixed_gemm_cli(repository: Path, tmp_path: Path) -> Any:
    """Runs the command in a process of its own that finds the folder under its installed name."""
    (tmp_path / "mixed_gemm_cli").symlink_to(repository / "mixed_gemm" / "cli")
    path = os.pathsep.join((str(tmp_path), str(repository)))
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "300"}

    def run(*arguments: str) -> Answer:
        done = subprocess.run(
            [sys.executable, "-c", RUN, *arguments],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        *errors, imported = done.stderr.splitlines()
        modules, heavy = json.loads(imported)
        return Answer(done.returncode, done.stdout, "\n".join(errors), heavy, modules)

    return run


@pytest.mark.parametrize("arguments", [[], *([name] for name in COMMANDS)], ids=" ".join)
def test_help_imports_nothing_heavy(mixed_gemm_cli: Any, arguments: list[str]) -> None:
    begun = time.perf_counter()
    answer = mixed_gemm_cli(*arguments, "--help")
    print(f"mixed-gemm {' '.join(arguments)} --help: {time.perf_counter() - begun:.2f} s")
    assert (answer.status, answer.imported) == (0, []) and answer.modules < MOST_MODULES
    assert answer.stdout.startswith(f"Usage: {' '.join(['mixed-gemm', *arguments])} ")


def test_version_imports_nothing_heavy(mixed_gemm_cli: Any) -> None:
    begun = time.perf_counter()
    answer = mixed_gemm_cli("--version")
    print(f"mixed-gemm --version: {time.perf_counter() - begun:.2f} s")
    assert (answer.status, answer.imported) == (0, [])
    assert answer.stdout.strip() == mixed_gemm.__version__


WRONG = {  # command line -> what it is told
    "benhc": "No such command",
    "doctor --device gpu": "--device must be",
    "env --jsn": "No such option",
    "demo --n 0": "greater than or equal to 1",
    "demo --device gpu": "--device must be",
    "inspect": "Missing argument",
    "convert SOURCE TARGET --shard-size nan": "greater than or equal to",
    "quantize SOURCE": "Missing argument",
    "quantize SOURCE TARGET --device gpu": "--device must be",
    "quantize SOURCE TARGET --shard-size inf": "must be a finite number",
    "eval MODEL": "give a TEXT",
    "eval MODEL --tasks piqa --device gpu": "--device must be",
    "bench 64 64 --m 1,x": "must be positive numbers",
    "bench 64 64 --device gpu": "--device must be",
    "bench 64 64 --dtype int8": "is not one of",
    "tune 64 64 --m 0": "must be positive numbers",
    "tune 64 64 --device gpu": "--device must be",
}


def test_every_command_has_a_wrong_usage_here() -> None:
    assert {line.split()[0] for line in WRONG} - {"benhc"} == set(COMMANDS)


@pytest.mark.parametrize("line", WRONG)
def test_wrong_usage_imports_nothing_heavy(mixed_gemm_cli: Any, line: str) -> None:
    answer = mixed_gemm_cli(*line.split())
    assert (answer.status, answer.imported) == (2, []), answer.errors
    assert WRONG[line] in answer.errors and answer.modules < MOST_MODULES


def test_a_command_runs_under_the_installed_name(mixed_gemm_cli: Any) -> None:
    answer = mixed_gemm_cli("env", "--json")
    assert answer.status == 0, answer.errors
    assert json.loads(answer.stdout)["mixed_gemm"] == mixed_gemm.__version__
    assert "torch" in answer.imported  # so the tests above would notice it


def test_help_states_the_defaults_of_the_package(mixed_gemm_cli: Any) -> None:
    """cli/ repeats them, since it may not import them for help."""
    rows = {
        "bench": ",".join(map(str, benchmark.DEFAULT_M)),
        "tune": ",".join(map(str, tuning.DEFAULT_M)),
    }
    rows["quantize"] = f"({', '.join(select.DEFAULT_SKIP)})"
    for command, default in rows.items():
        text = " ".join(mixed_gemm_cli(command, "--help").stdout.split())
        assert f"[default: {default}]" in text


def test_a_wrong_scheme_is_told_all_of_them(mixed_gemm_cli: Any, tmp_path: Path) -> None:
    answer = mixed_gemm_cli("quantize", str(tmp_path), str(tmp_path / "out"), "--scheme", "w3a7")
    assert answer.status == 1
    assert all(name in answer.errors for name in SCHEMES)
