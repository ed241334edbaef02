"""Compile and export every row.

python -m trips.graphs FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trips.cells import Cells, compared, logits, quietly, row_folder
from trips.subjects import Subject, subjects


class Logits(nn.Module):
    """A model of transformers that answers a tensor, which a program in a file can."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._model = model

    def forward(self, **inputs: Tensor) -> Tensor:
        out: Tensor = self._model(**inputs).logits
        return out


def compiled(model: Any, inputs: dict[str, Tensor], wanted: Tensor) -> str:
    """One graph. aot_eager traces what inductor does, forward and fake kernels, and runs the ops
    as they are, so that the bits must be the same."""
    torch._dynamo.reset()
    graph = torch.compile(Logits(model), fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        return compared(graph(**inputs), wanted, 0.0)


def exported(model: Any, inputs: dict[str, Tensor], folder: Path) -> str:
    """Only exports; ``trips.ours`` reads and runs it."""
    with torch.no_grad():
        program = torch.export.export(Logits(model), (), kwargs=inputs)
    torch.export.save(program, folder / "program.pt2")
    return ""


def fill(cells: Cells, subject: Subject, folder: Path) -> None:
    model = subject.quantized()
    if hasattr(model.config, "use_cache"):
        model.config.use_cache = False
    inputs = dict(subject.model.inputs())
    wanted = logits(model, inputs)
    cells.run(subject.name, "compile", lambda: compiled(model, inputs, wanted))
    cells.run(subject.name, "to program.pt2", lambda: exported(model, inputs, folder))


def main(folder: Path) -> None:
    quietly()
    cells = Cells(folder, "graphs")
    for subject in subjects():
        if subject.is_architecture:
            continue
        fill(cells, subject, row_folder(folder, subject.name))
    cells.write()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
