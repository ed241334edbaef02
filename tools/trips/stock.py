"""Read the saved folders in a process that never imports mixed_gemm.

python -m trips.stock FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers

from trips.cells import SAME, WRONG, Cells, compared, logits, quietly

# Stock transformers unpacks the weights, and multiplies by them with torch's own GEMM, or rounds
# activations in steps of its own.
LOGITS = 1e-4
ROUNDED = 0.05


def read(folder: Path, auto: str) -> str:
    """Compare weights to the bit, logits within the error of a GEMM in float32."""
    model = getattr(transformers, auto).from_pretrained(folder / "saved", dtype=torch.float32)
    wanted: dict[str, Any] = torch.load(folder / "wanted.pt")
    found = logits(model, wanted["inputs"])  # the first forward unpacks
    bound = ROUNDED if wanted["rounds_activations"] else LOGITS
    for name, weight in wanted["weights"].items():
        text = compared(model.get_submodule(name).weight, weight, 0.0)
        if text != SAME:
            return f"{WRONG}: {name} {text}"
    text = compared(found, wanted["logits"], bound)
    return text if text.startswith(WRONG) else f"weights {SAME}, logits {text}"


def main(folder: Path) -> None:
    quietly()
    cells = Cells(folder, "stock")
    for row, place, auto in json.loads((folder / "manifest.json").read_text()):
        path = folder / place
        cells.run(row, "transformers alone", lambda path=path, auto=auto: read(path, auto))  # type: ignore[misc]
    assert "mixed_gemm" not in sys.modules
    cells.write()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
