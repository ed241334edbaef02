"""Write what a version of this library before weights had names of their types wrote: state dicts,
a pickled layer and a folder of ``save_checkpoint``, with the Python of that time.

    git archive 5363cc9 mixed_gemm | tar -x -C OLD
    export PYTHONPATH=OLD:tests/python MIXED_GEMM_LIBRARY=build/libmixed_gemm.so
    python tests/data/make_older.py

Made with torch 2.13.0; the ops of packed weights are the same since.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file
from support.older_layers import LAYERS, dense, model
from torch import nn

from mixed_gemm.formats import save_checkpoint

OUT = Path(__file__).parent / "older"


def main() -> None:
    OUT.mkdir(exist_ok=True)
    tensors = {}
    for name, make in LAYERS.items():
        torch.manual_seed(len(name))
        layer = make(dense(name))
        tensors |= {f"{name}.{part}": x for part, x in layer.state_dict().items()}
        tensors[f"{name}.dense"] = layer.weight.dequantize()
    save_file({name: x.contiguous() for name, x in tensors.items()}, OUT / "states.safetensors")
    layers: dict[str, nn.Module] = model(tensors)
    torch.save(layers["int4"], OUT / "int4.pt")
    save_checkpoint(nn.ModuleDict(layers), OUT / "saved", config={}, overwrite=True)


if __name__ == "__main__":
    main()
