"""Layers of files that loading changes, each rank reading its shard, against one process that reads
all of the layer: float8 that is rounded to int8, and zero points that only some shards have.

    python -m support.parallel_read RANK STORE FOLDER

FOLDER: of what ``write`` made. Prints "NAME: ok" or "NAME: " and what is wrong, then "done".
"""

from __future__ import annotations

import json
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from support import float8_files, ranks

import mixed_gemm
from mixed_gemm.distributed.layers import read_linear
from mixed_gemm.distributed.read import COLUMNS, ROWS
from mixed_gemm.formats.layer import LayerTensors
from mixed_gemm.formats.load import Wanted

# K that shards cut where no group of 128 ends, a last group of 64 columns, and K below 128.
SHAPES = {"cut": (64, 384), "ragged": (128, 448), "narrow": (64, 64)}
FLOAT8 = {
    "block": ("block", [64, 64]),
    "large block": ("block", [128, 128]),
    "odd block": ("block", [48, 40]),
    "channel": ("channel", None),
    "tensor": ("tensor", None),
}
ZERO_MODES = ("sub", "add")


def write(folder: Path) -> None:
    """A float8 file for each way to share scales; files of which half the rows have zero points."""
    torch.manual_seed(0)
    for name, (strategy, block) in FLOAT8.items():
        rule = {"strategy": strategy} | ({"block_structure": block} if block else {})
        tensors = {}
        for layer, (n, k) in SHAPES.items():
            rows, columns = block or ((1, k) if strategy == "channel" else (n, k))
            grid = (1,) if strategy == "tensor" else (-(-n // rows), -(-k // columns))
            tensors[f"{layer}.weight"] = torch.randn(n, k).to(torch.float8_e4m3fn)
            tensors[f"{layer}.weight_scale"] = torch.rand(grid) + 0.5
        (path := folder / name).mkdir()
        save_file(tensors, path / "model.safetensors")
        config = float8_files.compressed(rule, float8_files.TOKEN)
        (path / "config.json").write_text(json.dumps({"quantization_config": config}))
    for mode in ZERO_MODES:
        q = torch.randint(-8, 8, (64, 128), dtype=torch.int8)
        scales = torch.full((2, 64), 0.25)
        zeros = torch.where(torch.arange(64) < 32, 3.0, 0.0).expand(2, 64)
        zeros = zeros if mode == "sub" else -zeros * scales
        layer = mixed_gemm.Linear.from_quantized(
            q, scales, zeros.contiguous(), bits=4, group_size=64, zero_mode=mode
        )
        mixed_gemm.save_checkpoint(torch.nn.Sequential(layer), folder / mode, config={})


def check(path: Path, name: str, mesh: Any, dim: int, **options: Any) -> None:
    """The layer that all ranks hold has the scheme and the values that one process reads."""
    checkpoint = mixed_gemm.open_checkpoint(path)
    layer, codec = LayerTensors(checkpoint.index, name), checkpoint.codec
    exact: Any = codec.load(layer, codec.describe(layer), Wanted(torch.float32, **options)).weight
    made = read_linear(checkpoint.index, codec, name, mesh, dim, dtype=torch.float32, **options)
    assert made.scheme == exact.scheme, (str(made.scheme), str(exact.scheme))
    stored = made.state_dict()
    for part, wanted in exact.stored().items():
        found: Any = stored[part]
        found = found.full_tensor() if hasattr(found, "full_tensor") else found
        assert torch.equal(found.cpu(), wanted), part
    assert torch.equal(made.dequantize().cpu(), exact.dequantize())


def main(rank: int, store: str, folder: Path) -> None:
    warnings.simplefilter("ignore")
    mesh, cases = ranks.join(rank, store), {}
    for dim in (ROWS, COLUMNS):
        for name in FLOAT8:
            for layer in SHAPES:
                cases[f"{name}, {layer}, {dim}"] = partial(
                    check, folder / name, layer, mesh, dim, float8="int8"
                )
        for mode in ZERO_MODES:
            cases[f"{mode}, {dim}"] = partial(check, folder / mode, "0", mesh, dim)
    ranks.try_all(cases)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
