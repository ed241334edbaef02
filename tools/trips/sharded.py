"""Cut the MLP of every row over two processes with torch's own tensor parallelism.

python -m trips.sharded FOLDER RANK
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from trips.cells import WRONG, Cells, compared, logits, quietly
from trips.subjects import Subject, subjects

WORLD = 2
SUMS = 1e-4  # two halves of a sum in float32, against one
ROUNDED = 0.05  # where each process finds scales for its half of a row of activations


def plan(model: Any) -> dict[str, Any]:
    """Rows of the layers that widen, columns of the one that narrows."""
    names = [name for name, _ in model.named_modules() if ".mlp." in name]
    wide = [x for x in names if x.endswith(("gate_proj", "up_proj", "fc1"))]
    narrow = [x for x in names if x.endswith(("down_proj", "fc2"))]
    return {x: ColwiseParallel() for x in wide} | {x: RowwiseParallel() for x in narrow}


def blocks_are_cut(model: Any, found: dict[str, Any]) -> bool:
    """Whether shares of columns have other blocks than the whole, and round activations by them."""
    layers = [model.get_submodule(x) for x, style in found.items()
              if isinstance(style, RowwiseParallel)]  # fmt: skip
    side = layers[0].scheme.input_activations
    size = layers[0].scheme.group_size
    by_block = side is not None and side.strategy == "group" and size != -1
    return by_block and any(x.in_features // WORLD % size for x in layers)


def cut(subject: Subject, mesh: Any) -> str:
    model, inputs = subject.quantized(), dict(subject.model.inputs())
    wanted, found = logits(model, inputs), plan(model)
    side = model.get_submodule(next(iter(found))).scheme.input_activations
    by_row = side is not None and side.dynamic and side.strategy == "token"
    bound = ROUNDED if by_row or blocks_are_cut(model, found) else SUMS
    parallelize_module(model, mesh, found)
    if not all(isinstance(model.get_submodule(x).weight, DTensor) for x in found):
        return f"{WRONG}: a weight is no DTensor"
    return compared(logits(model, inputs), wanted, bound)


def main(folder: Path, rank: int) -> None:
    quietly()
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'store'}",
        rank=rank,
        world_size=WORLD,
        timeout=timedelta(minutes=5),
    )
    mesh = init_device_mesh("cpu", (WORLD,))
    cells = Cells(folder, f"sharded{rank}")
    for subject in subjects():
        if subject.is_architecture:
            continue
        cells.run(subject.name, "DTensor", lambda subject=subject: cut(subject, mesh))  # type: ignore[misc]
    cells.write()
    dist.barrier()
    sys.stderr.flush()
    os._exit(0)  # gloo's threads may abort an interpreter that is being finalized


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
