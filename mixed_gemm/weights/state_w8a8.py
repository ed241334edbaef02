"""What a checkpoint of one ``LinearW8A8`` may hold; the weight-only twin is in ``state``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..ops.problem import DTYPES
from .state import QuantizedLayer

FLOATS = ("weight_scale", "input_scale", "pre_scale")  # must be finite
OF_ACTIVATIONS = ("pre_scale", "bias")  # share the dtype of the activations


@dataclass(frozen=True)
class Int8Layer(QuantizedLayer):
    """The part of a W8A8 layer that a checkpoint must match."""

    activations: str = "dynamic"

    def tag(self) -> dict[str, Any]:
        return {
            "scheme": "w8a8",
            "in_features": self.in_features,
            "out_features": self.out_features,
            "activations": self.activations,
        }

    def tensors(self) -> dict[str, tuple[tuple[int, ...], tuple[torch.dtype, ...]]]:
        """Name -> shape and allowed dtypes."""
        n, k = self.out_features, self.in_features
        return {
            "weight_int8": ((n, k), (torch.int8,)),
            "weight_scale": ((n,), (torch.float32,)),
            "azp_adj": ((n,), (torch.int32,)),
            "input_scale": ((), (torch.float32,)),
            "input_azp": ((), (torch.int32,)),
            "pre_scale": ((k,), DTYPES),
            "bias": ((n,), DTYPES),
        }

    def tensor_problems(self, tensors: Mapping[str, Tensor | None]) -> list[str]:
        problems = []
        for name, (shape, allowed) in self.tensors().items():
            tensor = tensors.get(name)
            if tensor is None:
                continue
            if tuple(tensor.shape) != shape:
                problems.append(f"{name} must be {shape}, got {tuple(tensor.shape)}")
            if tensor.dtype not in allowed:
                names = " or ".join(map(str, allowed))
                problems.append(f"{name} must be {names}, got {tensor.dtype}")
        found = {tensors[x].dtype for x in OF_ACTIVATIONS if tensors.get(x) is not None}  # type: ignore[union-attr]
        if len(found) > 1:
            problems.append(
                f"pre_scale and bias must share one dtype, got {sorted(map(str, found))}"
            )
        return problems
