"""Whatever a command is given: it does what it is asked, or ends with a sentence and its status,
never in a traceback, and leaves what it was given as it was. The inputs are made from the commands'
own table of arguments, so that a new argument is tried without a line here."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support import command_inputs
from support.command_inputs import BREAKAGES, HUGE, TEXT_FILES, Parameter

pytest.importorskip("typer", reason="the extra cli is not installed: pip install typer rich")
from typer.testing import CliRunner

from mixed_gemm.cli.app import COMMANDS, app
from mixed_gemm.cli.output import UNEXPECTED

transformers = pytest.importorskip("transformers", minversion="5.17", reason="optional: hf extra")

MOST = str(2**31)


class Answer(NamedTuple):
    status: int
    errors: str


def run(*arguments: object) -> Answer:
    """Checks all that holds of any answer."""
    line = [str(x) for x in arguments]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = CliRunner().invoke(app, line)
    said = f"{line!a}: {done.exit_code}, {done.output[-2000:]!r} {done.exception!r}"
    assert done.exception is None or isinstance(done.exception, SystemExit), said
    assert done.exit_code in (0, 1, 2), said
    if done.exit_code:
        assert ("error: " if done.exit_code == 1 else "Error: ") in done.stderr, said
        assert UNEXPECTED not in done.stderr and "Traceback" not in done.stderr, said
        assert len(done.stderr.split("rror: ")[1].strip()) > 10, said
    return Answer(done.exit_code, done.stderr)


def content(folder: Path) -> dict[str, str]:
    files = [x for x in folder.rglob("*") if x.is_file()]
    return {str(x): hashlib.sha256(x.read_bytes()).hexdigest() for x in files}


class Inputs:
    """A dense folder, a quantized one and a text."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.dense = command_inputs.dense_folder(folder / "dense")
        self.text, self.quantized = folder / "text.txt", folder / "quantized"
        self.text.write_text(" ".join(f"w{7 * i % 60}" for i in range(200)))
        assert run("quantize", self.dense, self.quantized, "--group-size", 32).status == 0

    def lines(self, target: Path) -> dict[str, list[str]]:
        """Command lines that are right, options in front of "--"; of some commands two."""
        calibrated = f"quantize --method=gptq --calibration={self.text} --tokens=64 --group-size=32"
        found = {
            "quantize": f"quantize -- {self.dense} {target}",
            "quantize, calibrated": f"{calibrated} -- {self.dense} {target}",
            "convert": f"convert -- {self.quantized} {target}",
            "inspect": f"inspect --check -- {self.quantized}",
            "eval": f"eval --device=cpu -- {self.dense} {self.text}",
            "eval, rounded": f"eval --bits=4 --group-size=32 -- {self.dense} {self.text}",
            "doctor": "doctor --device=cpu --",
            "env": "env --",
            "demo": "demo --n=64 --k=128 --device=cpu --",
            "bench": "bench --m=1 --device=cpu -- 64 128",
            "tune": "tune --m=1 -- 64 128",
        }
        return {name: line.split(" ") for name, line in found.items()}


@pytest.fixture(autouse=True)
def quiet() -> None:
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inputs]:
    made = Inputs(tmp_path_factory.mktemp("inputs"))
    before = content(made.folder)
    yield made
    assert content(made.folder) == before


# What may be meant, or is not looked at: (command or "", name of the argument) -> values.
FINE: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "device"): ("",),
    ("", "out"): ("nonesuch", " ", "\u00e9", "cuda:264", "\udcff"),
    ("", "target"): ("nonesuch", " ", "\u00e9", "cuda:264", "\udcff"),
    ("", "tokens"): (MOST, HUGE),
    ("", "seed"): ("0", "-1", MOST, HUGE, f"-{HUGE}"),
    ("", "skip"): command_inputs.TEXTS,
    ("", "shard_size"): ("1.5", MOST, HUGE),
    ("", "limit"): (MOST, HUGE),
    ("", "max_tokens"): (MOST, HUGE),
    ("", "window"): (MOST, HUGE),
    ("", "tasks"): ("",),
    ("quantize", "group_size"): ("-1", MOST),
    ("eval", "bits"): ("0",),
    ("eval", "group_size"): ("0", "-1", MOST, HUGE, f"-{HUGE}"),  # without --bits
    ("bench", "group_size"): ("-1",),
}
SLOW = ("bench",)  # they measure, where nothing is wrong


def may_be_fine(parameter: Parameter, value: str) -> bool:
    named = {(x, parameter.name) for x in ("", parameter.command)}
    return any(value in FINE.get(name, ()) for name in named)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_value_of_every_argument(
    command: str, inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [x for x in command_inputs.parameters() if x.command == command]
    lines = {k: v for k, v in inputs.lines(tmp_path).items() if k.split(",")[0] == command}
    assert lines and (found or command == "env")
    tried = 0
    for name in lines:
        # A second line is for what the first one does not look at, numbers all.
        looked_at = [x for x in found if "," not in name or x.is_number]
        for parameter in looked_at:
            for value in parameter.values():
                fine = may_be_fine(parameter, value)
                if fine and command in SLOW:
                    continue
                place = tmp_path / str(tried)
                place.mkdir()
                monkeypatch.chdir(place)
                line = parameter.given(inputs.lines(place / "out")[name], value)
                answer = run(*line)
                tried += 1
                if answer.status:
                    assert not content(place), f"{line!a} left {list(content(place))}"
                else:
                    assert fine, f"{line!a}: nobody means that, and it was taken"
    print(f"{command}: {tried} lines")


@pytest.mark.parametrize("how", BREAKAGES)
def test_every_breakage_of_a_folder(how: str, inputs: Inputs, tmp_path: Path) -> None:
    dense = command_inputs.broken_copy(tmp_path / "dense", inputs.dense, how)
    quantized = command_inputs.broken_copy(tmp_path / "quantized", inputs.quantized, how)
    before = content(tmp_path)
    for name, line in inputs.lines(tmp_path / "out").items():
        moved = [x.replace(str(inputs.quantized), str(quantized)) for x in line]
        moved = [
            x if x == str(inputs.text) else x.replace(str(inputs.dense), str(dense)) for x in moved
        ]
        if moved == line:
            continue
        answer = run(*moved)
        if answer.status:
            assert answer.status == 1
            assert str(tmp_path) in answer.errors, f"{name}: no file is named, {answer.errors}"
            assert content(tmp_path) == before
        else:
            print(f"{how}: {name} is done")
            for file in (tmp_path / "out").glob("*"):
                file.unlink()


@pytest.mark.parametrize("how", TEXT_FILES)
def test_every_breakage_of_a_text(how: str, inputs: Inputs, tmp_path: Path) -> None:
    file = tmp_path / "broken.txt"
    file.write_bytes(TEXT_FILES[how])
    for name, line in inputs.lines(tmp_path / "out").items():
        moved = [x.replace(str(inputs.text), str(file)) for x in line]
        if moved != line:
            answer = run(*moved)
            assert answer.status == 1 and str(file) in answer.errors, (name, answer)
            if how.startswith(("not in", "in ", "cut")):
                assert "UTF-8" in answer.errors
