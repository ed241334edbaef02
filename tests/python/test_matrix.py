"""tools/matrix.py: what a machine lacks is told and passes, what goes wrong fails."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.requirements import Requirement

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import matrix
import matrix_newest as newest

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
        monkeypatch.setattr(matrix, "OTHERS", ())
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


def test_the_newest_libraries_are_a_row_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: Any
) -> None:
    assert dict(matrix.OTHERS) == {newest.NAME: newest.run}
    monkeypatch.setattr(matrix, "CELLS", ())
    for result, status in (("passed", 0), ("not here", 0), ("failed", 1)):
        row = ("newest", lambda folder, result=result: (result, "pytest 99"))
        monkeypatch.setattr(matrix, "OTHERS", (row,))
        monkeypatch.setattr(matrix, "FOLDER", tmp_path)
        assert matrix.main([]) == status
        assert f"newest: {result}: pytest 99" in capfd.readouterr().out
        assert matrix.main(["9.9@9.9"]) == 0
        assert "pytest 99" not in capfd.readouterr().out


def test_the_newest_is_what_our_ranges_allow() -> None:
    asked = {one.name: one for one in newest.asked()}
    assert {"pytest", "hypothesis", "transformers", "peft"} == set(newest.LOOKED_UP) <= set(asked)
    assert asked["transformers"].specifier.contains("5.99.0")
    assert not any("==" in str(one) for one in asked.values())


def index(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """An index of which pip prints this."""
    done = subprocess.CompletedProcess([], 0, stdout=text)
    monkeypatch.setattr(newest.subprocess, "run", lambda *args, **options: done)


def test_the_newest_version_is_read_from_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    python, one = Path("python"), Requirement("one>=5.2,<6")
    index(monkeypatch, "one (6.1)\nAvailable versions: 6.1, 5.10.0, 5.9.1, 5.1\nINSTALLED: 5.1\n")
    assert newest.newest(python, one) == "5.10.0"
    index(monkeypatch, "")
    with pytest.raises(matrix.NotHere, match="no index answers which versions of one"):
        newest.newest(python, one)

    def hangs(command: list[str], timeout: float, **options: Any) -> None:
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(newest.subprocess, "run", hangs)
    with pytest.raises(matrix.NotHere, match="no index answers in 120 s"):
        newest.newest(python, one)


def test_what_is_held_back_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(newest, "asked", lambda: [Requirement("packaging"), Requirement("numpy")])
    monkeypatch.setattr(newest, "LOOKED_UP", ("numpy",))
    monkeypatch.setattr(newest, "pip", lambda python, log, *arguments: "")
    monkeypatch.setattr(newest, "newest", lambda python, one: {"numpy": "99.1"}[one.name])
    what = newest.taken(Path(sys.executable), tmp_path / "log")
    assert "(held back, 99.1 is on the index)" in what
    assert what.startswith(f"torch {version('torch')}, packaging {version('packaging')}, numpy ")


@pytest.mark.parametrize(
    ("step", "error", "result"),
    [
        ("taken", matrix.NotHere("no index"), "not here"),
        ("taken", matrix.Failed("pip broke"), "failed"),
        ("test", matrix.Failed("pytest ended with 1"), "failed"),
        ("test", subprocess.TimeoutExpired("pytest", 9), "failed"),
    ],
)
def test_what_goes_wrong_with_the_newest_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, step: str, error: Exception, result: str
) -> None:
    def ends(python: Path, log: Path) -> str:
        raise error

    monkeypatch.setattr(newest, "environment", lambda home: Path(sys.executable))
    monkeypatch.setattr(newest, "taken", lambda python, log: "pytest 99")
    monkeypatch.setattr(newest, step, ends)
    outcome, what = newest.run(tmp_path)
    assert outcome == result and str(error) in what
    assert ("with pytest 99" in what) == (step == "test")


@pytest.mark.parametrize("program", ["def test_it():\n    assert 0\n", "import nothing_there\n"])
def test_tests_that_fail_with_the_newest_libraries_fail_the_row(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str
) -> None:
    file = tmp_path / "test_one.py"
    monkeypatch.setattr(newest, "TESTS", (str(file),))
    monkeypatch.setattr(newest, "COLLECTED", str(file))
    monkeypatch.setenv("JOBS", "1")
    file.write_text("def test_it():\n    pass\n")
    newest.test(Path(sys.executable), tmp_path / "log")
    file.write_text(program)
    with pytest.raises(matrix.Failed, match=r"pytest .*test_one\.py .*ended with"):
        newest.test(Path(sys.executable), tmp_path / "log")


def test_the_environment_sees_the_one_in_use(tmp_path: Path) -> None:
    python = newest.environment(tmp_path / "home")
    status, output = newest.run_in_tree(
        [str(python), "-c", "import pytest, torch; print(torch.__version__, pytest.__version__)"],
        tmp_path / "log",
        1,
    )
    assert (status, output) == (0, f"{torch.__version__} {pytest.__version__}\n")


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
