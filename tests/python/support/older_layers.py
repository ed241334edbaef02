"""The layers of tests/data/older, as the version that wrote them and this one make them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

import mixed_gemm

N, K = 16, 48
CONVOLUTION, EMBEDDING = "conv", "embedding"

# name -> what makes the layer of a dense one
LAYERS: dict[str, Callable[[Any], Any]] = {
    "int4": lambda x: mixed_gemm.Linear.from_float(x, "w4a16_asym", group_size=32),
    "int8": lambda x: mixed_gemm.Linear.from_float(x, "w8a16"),
    "w8a8": lambda x: mixed_gemm.Linear.from_float(x, "w8a8"),
    "fp8": lambda x: mixed_gemm.Linear.from_float(x, "fp8"),
    CONVOLUTION: lambda x: mixed_gemm.Conv2d.from_float(x, 4, -1, symmetric=False),
    EMBEDDING: mixed_gemm.Embedding.from_float,
}


def dense(name: str) -> nn.Module:
    """The dense layer that ``name`` is made from, float16, with weights drawn anew."""
    if name == CONVOLUTION:
        return nn.Conv2d(K, N, 1, dtype=torch.float16)
    if name == EMBEDDING:
        return nn.Embedding(N, K, dtype=torch.float16)
    return nn.Linear(K, N, bias=name == "int4", dtype=torch.float16)


def model(tensors: Mapping[str, Tensor]) -> dict[str, nn.Module]:
    """The layers with the state dicts in ``tensors``: ``<layer>.<part>``, and ``<layer>.dense`` of
    what the weight stands for."""
    found = {}
    for name, make in LAYERS.items():
        layer: nn.Module = make(dense(name))
        state = {
            part.removeprefix(f"{name}."): x
            for part, x in tensors.items()
            if part.startswith(f"{name}.") and part != f"{name}.dense"
        }
        layer.load_state_dict(state)
        found[name] = layer
    return found
