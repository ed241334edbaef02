"""AutoAWQ scales the activation function itself where no layer in front of it can take the scale up
(falcon, mpt, gptj, bloom, starcoder2, ...): its files have an "act.scales" there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ...formats.errors import CheckpointError
from ...formats.index import TensorIndex


class ScaledActivation(nn.Module):
    """The module y = act(x) / scales, scales ``[K]`` in the dtype of the model."""

    scales: Tensor

    def __init__(self, act: nn.Module, scales: Tensor) -> None:
        super().__init__()
        self.act = act
        self.register_buffer("scales", scales)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.act(x)
        return y / self.scales.to(y.dtype)


def leftover_scales(names: Iterable[str], quantized: Iterable[str]) -> list[str]:
    """Find modules with scales that are no quantized layer."""
    layers = set(quantized)
    modules = [name.removesuffix(".scales") for name in names if name.endswith(".scales")]
    return [name for name in modules if name not in layers]


def swap_activations(
    model: Any, index: TensorIndex, modules: Iterable[tuple[str, str]], dtype: torch.dtype
) -> None:
    """Wrap the activation at each place.

    Args:
        modules: (name in the file, name in the model).

    Raises:
        CheckpointError: the model has no such module.
    """
    for name, target in modules:
        tensor = f"{name}.scales"
        try:
            act = model.get_submodule(target)
        except AttributeError as error:
            file = index.file(tensor)
            raise CheckpointError(file, tensor, "scales what the model does not have") from error
        scales = torch.empty(index.shape(tensor), dtype=dtype, device="meta")
        model.set_submodule(target, ScaledActivation(act, scales))
