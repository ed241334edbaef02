"""Read again what ``trips.make`` and ``trips.graphs`` left, in a process of its own, with
mixed_gemm imported; and have the command line write the same.

    python -m trips.ours FOLDER
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import torch

import mixed_gemm
from mixed_gemm.cli import output
from mixed_gemm.cli.app import app
from trips.cells import WRONG, Cells, compared, logits, quietly, row_folder
from trips.make import SAVED, quantized
from trips.subjects import Subject, auto, subjects


def command(*arguments: object) -> None:
    """``mixed-gemm ARGUMENTS``; what it would print as an error is raised."""
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            app(["--traceback", *map(str, arguments)], standalone_mode=False)
        finally:
            output.state["traceback"] = False


class Reader:
    """Everything that is read of one row."""

    def __init__(self, subject: Subject, folder: Path) -> None:
        self._subject, self._folder = subject, folder
        self._wanted = torch.load(folder / "wanted.pt")
        self._inputs = self._wanted["inputs"]

    def _same(self, model: Any, file: str = "") -> str:
        """The logits of a model that was read, beside those before it was saved."""
        if set(quantized(model)) != set(self._wanted["weights"]):
            return f"{WRONG}: {len(quantized(model))} layers are quantized"
        wanted = torch.load(self._folder / file) if file else self._wanted["logits"]
        return compared(logits(model, self._inputs), wanted, self._subject.bound)

    def _load(self, folder: str) -> Any:
        kind = auto(self._subject.model.auto)
        return mixed_gemm.from_pretrained(
            self._folder / folder, model_class=kind, dtype=torch.float32
        )

    def ours(self) -> str:
        """mixed_gemm.from_pretrained, of what either way of saving wrote."""
        texts = {self._same(self._load(folder)) for folder in SAVED}
        return texts.pop() if len(texts) == 1 else f"{WRONG}: {sorted(texts)}"

    def transformers(self) -> str:
        """The class of transformers itself."""
        kind = auto(self._subject.model.auto)
        return self._same(kind.from_pretrained(self._folder / "saved", dtype=torch.float32))

    def cli(self) -> str:
        """``mixed-gemm quantize`` of the dense model, or ``convert`` of the quantized one."""
        if self._subject.cli is None:
            command("convert", self._folder / "saved", self._folder / "cli")
            return f"convert: {self._same(self._load('cli'))}"
        command("quantize", self._folder / "dense", self._folder / "cli", *self._subject.cli)
        return self._same(self._load("cli"))

    def state_dict(self) -> str:
        """Into a model of the same layers that holds nothing but zeros."""
        model = self._subject.quantized()
        for name, tensor in model.state_dict().items():
            if not name.endswith(("_extra_state", "permutation")):
                tensor.zero_()
        if torch.equal(logits(model, self._inputs), self._wanted["logits"]):
            return f"{WRONG}: the zeros compute the same"
        model.load_state_dict(torch.load(self._folder / "state.pt"))
        return compared(logits(model, self._inputs), self._wanted["logits"], 0.0)

    def exported(self) -> str:
        """The program that ``trips.graphs`` exported."""
        program = torch.export.load(self._folder / "program.pt2").module()
        with torch.no_grad():
            return compared(program(**self._inputs), self._wanted["logits"], 0.0)

    def adapter(self) -> str:
        """The adapter, on the model that was read."""
        tuned = peft.PeftModel.from_pretrained(self._load("saved"), self._folder / "adapter").eval()
        return compared(
            logits(tuned, self._inputs), torch.load(self._folder / "tuned.pt"), self._subject.bound
        )

    def merged(self) -> str:
        return self._same(self._load("merged"), "merged.pt")


COLUMNS: dict[str, Callable[[Reader], str]] = {
    "mixed_gemm": Reader.ours,
    "transformers, mixed_gemm imported": Reader.transformers,
    "CLI": Reader.cli,
    "state_dict": Reader.state_dict,
    "export": Reader.exported,
    "adapter reloaded": Reader.adapter,
    "merged reloaded": Reader.merged,
}

OF_ARCHITECTURES = ("mixed_gemm", "transformers, mixed_gemm imported", "CLI")


def main(folder: Path) -> None:
    quietly()
    cells = Cells(folder, "ours")
    for subject in subjects():
        reader = Reader(subject, row_folder(folder, subject.name))
        for column, read in COLUMNS.items():
            if subject.is_architecture and column not in OF_ARCHITECTURES:
                continue
            cells.run(subject.name, column, lambda reader=reader, read=read: read(reader))  # type: ignore[misc]
    cells.write()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
