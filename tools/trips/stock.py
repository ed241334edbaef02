"""Read the saved folders in a process that never imports mixed_gemm.

python -m trips.stock FOLDER
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import transformers

from trips.cells import SAME, WRONG, Cells, compared, logits, quietly

# Stock transformers unpacks the weights, and multiplies by them with torch's own GEMM, or rounds
# activations in steps of its own.
LOGITS = 1e-4
ROUNDED = 0.05
# bitsandbytes multiplies in bfloat16 on CPUs, whose epsilon is 0.0078.
BFLOAT16 = 0.008


def of_books(model: Any, names: Iterable[str]) -> dict[str, Any]:
    """The weights that bitsandbytes holds, which its first forward orders anew for CPUs; none of
    other models."""
    if not getattr(model, "is_loaded_in_4bit", False):
        return {}
    from bitsandbytes.functional import dequantize_4bit

    weights = {name: model.get_submodule(name).weight for name in names}
    return {name: dequantize_4bit(weight, weight.quant_state) for name, weight in weights.items()}


def weight_of(model: Any, name: str) -> torch.Tensor:
    """The weight of a linear, or of one of an expert, which transformers holds as a part of a
    tensor of all experts."""
    match = re.fullmatch(r"(.*experts)\.(\d+)\.(\w+)", name)
    if match is None:
        found: torch.Tensor = model.get_submodule(name).weight
        return found
    experts, part = model.get_submodule(match[1]), match[3]
    if part in ("down_proj", "w2"):
        down: torch.Tensor = experts.down_proj[int(match[2])]
        return down
    both: torch.Tensor = experts.gate_up_proj[int(match[2])]
    gate, up = both.chunk(2)
    return gate if part in ("gate_proj", "w1") else up


def read(folder: Path, auto: str) -> str:
    """Compare weights to the bit, logits within the error of a GEMM in float32."""
    model = getattr(transformers, auto).from_pretrained(folder / "saved", dtype=torch.float32)
    wanted: dict[str, Any] = torch.load(folder / "wanted.pt")
    books = of_books(model, wanted["weights"])
    found = logits(model, wanted["inputs"])  # the first forward of compressed-tensors unpacks
    bound = ROUNDED if wanted["rounds_activations"] else BFLOAT16 if books else LOGITS
    for name, weight in wanted["weights"].items():
        mine = books[name] if books else weight_of(model, name)
        text = compared(mine, weight, 0.0)
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
