"""tools/matrix.py: what a machine lacks is told and passes, what goes wrong fails."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import matrix

from mixed_gemm import _library

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
HELD = "The conflict is caused by:\n    The user requested (constraint) torch<=2.9\nERROR: ..."
NO_WHEEL = "(from versions: 2.9.0, 2.9.1)\nERROR: No matching distribution found for torch==2.10.0"
NO_INDEX = "(from versions: none)\nERROR: No matching distribution found for torch==2.10.0"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: Any) -> Any:
    """told(cell): exit status and what was printed, of a matrix of one cell on this machine."""
    monkeypatch.setattr(matrix, "FOLDER", tmp_path)

    def told(cell: matrix.Cell) -> tuple[int, str]:
        monkeypatch.setattr(matrix, "CELLS", (cell,))
        return matrix.main([]), capfd.readouterr().out

    return told


@pytest.fixture
def this_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new environment gets the torch of this one, without pip."""

    def install(python: Path, log: Path, cell: matrix.Cell) -> None:
        (packages,) = (python.parents[1] / "lib").glob("python*/site-packages")
        (packages / "torch.pth").write_text(str(Path(torch.__file__).parents[1]))

    monkeypatch.setattr(matrix, "install", install)
    monkeypatch.setattr(matrix, "interpreters", lambda version: [Path(sys.executable)])


@pytest.fixture
def no_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "find_python", lambda version: Path("/bin/true"))


def answers(monkeypatch: pytest.MonkeyPatch, output: dict[str, str]) -> list[str]:
    """pip that prints ``output`` of a requirement, and succeeds without; what it was asked for."""
    asked: list[str] = []

    def pip(python: Path, log: Path, requirement: str, *options: str) -> str:
        asked.append(requirement)
        return "ERROR: not that build" if "+cpu" in requirement else output.get(requirement, "")

    monkeypatch.setattr(matrix, "pip", pip)
    return asked


@pytest.mark.slow
def test_the_built_library_passes_in_a_new_environment(
    told: Any, this_torch: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIXED_GEMM_LIBRARY", str(_library.path))
    status, text = told(matrix.Cell("0.0", ("9.9", HERE)))
    assert status == 0, text
    assert f"Python {HERE}: not here" not in text and "Python 9.9: not here: no python9.9" in text
    assert f"passed: torch {torch.__version__}, Python {HERE}" in text
    assert "; not here: Python 9.9: no python9.9" in text
    assert text.endswith("\n1 passed, 0 failed, 0 skipped\n")
    assert [path.name for path in tmp_path.iterdir()] == [f"0.0-{HERE}.log"]


def test_a_library_that_does_not_load_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: Any
) -> None:
    monkeypatch.setenv("MIXED_GEMM_LIBRARY", str(tmp_path / "nothing.so"))
    with pytest.raises(matrix.Failed, match=r"tests/smoke\.py ended with 1"):
        matrix.smoke(Path(sys.executable), tmp_path / "log")
    assert f"was not found in {tmp_path}/nothing.so" in capfd.readouterr().out


def test_a_python_that_is_not_here_is_told(told: Any) -> None:
    status, text = told(matrix.Cell("0.0", ("9.8", "9.9")))
    assert status == 0
    assert "not here: Python 9.8: no python9.8" in text and "Python 9.9: no python9.9" in text
    assert text.endswith("\n0 passed, 0 failed, 1 skipped\n")


@pytest.mark.parametrize(
    ("output", "status", "reason"),
    [
        (HELD, 0, "not here: Python 3.10: pip of this machine is held to torch<=2.9"),
        (NO_WHEEL, 0, "not here: Python 3.10: no wheel of torch 2.10.0 where pip looks"),
        (NO_INDEX, 1, "failed: Python 3.10: pip could not install torch"),
        ("ERROR: disk full", 1, "failed: Python 3.10: pip could not install torch"),
    ],
)
def test_what_pip_refuses(
    told: Any, no_environments: None, monkeypatch: pytest.MonkeyPatch, output: str, status: int,
    reason: str,
) -> None:  # fmt: skip
    asked = answers(monkeypatch, {"torch==2.10.0": output})
    ended, text = told(matrix.Cell("2.10.0", ("3.10",)))
    assert (ended, reason in text) == (status, True), text
    assert asked == ["torch==2.10.0+cpu", "torch==2.10.0+cpu", "torch==2.10.0"]


def test_the_newest_that_pip_may_take_stands_in(
    told: Any, no_environments: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = answers(monkeypatch, {"torch==2.10.0": HELD})
    monkeypatch.setattr(matrix, "smoke", lambda python, log: "torch 2.9.1")
    status, text = told(matrix.Cell("2.10.0", ("3.10",), or_older=True))
    assert status == 0 and "held to torch<=2.9: the newest torch that it may take" in text
    assert "passed: torch 2.9.1; not here: torch 2.10.0: pip of this machine" in text
    assert asked[2:4] == ["torch==2.10.0", "torch"]


def test_a_full_disk_is_told_before_gigabytes_are_asked_for(
    told: Any, no_environments: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = answers(monkeypatch, {})
    monkeypatch.setattr(matrix, "ROOM_GB", 1e9)
    status, text = told(matrix.Cell("2.10.0", ("3.10",)))
    assert status == 0 and "torch with CUDA wants" in text
    assert "torch==2.10.0" not in asked


def test_the_rows_are_the_oldest_and_the_newest() -> None:
    oldest, newest = matrix.CELLS
    assert oldest.torch.split(".")[:2] == [str(part) for part in _library.MIN_TORCH]
    assert oldest.pythons == ("3.10",)
    assert newest.or_older and len(set(newest.pythons)) > 3


def test_arguments_are_torch_and_python() -> None:
    assert matrix.cell_of("2.12.0@3.12") == matrix.Cell("2.12.0", ("3.12",))
    with pytest.raises(SystemExit, match="must be TORCH@PYTHON"):
        matrix.cell_of("2.12.0")


def test_shims_of_pyenv_are_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where PATH names their folder with a slash at its end, pyenv runs them for ever."""
    shim = tmp_path / "shims" / "python3.10"
    shim.parent.mkdir()
    shim.write_text("#!/bin/sh\nsleep 600\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", f"{shim.parent}/")
    assert list(matrix.interpreters("3.10")) == []
    with pytest.raises(matrix.NotHere, match=r"no python3\.10"):
        matrix.find_python("3.10")


def test_a_slow_network_is_waited_for_once(monkeypatch: pytest.MonkeyPatch, told: Any) -> None:
    asked: list[str] = []

    def slow(cell: matrix.Cell, version: str) -> str:
        asked.append(version)
        raise matrix.TooSlow("pip did not finish in 8 minutes")

    monkeypatch.setattr(matrix, "run_with", slow)
    status, output = told(matrix.Cell("2.10.0", ("3.13", "3.12", "3.11")))
    assert (status, asked) == (0, ["3.13"])
    assert "not here: Python 3.13: pip did not finish" in output
