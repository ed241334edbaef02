"""Quantize one weight at the moment transformers has read it, so that the model is never in memory
unquantized.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers.core_model_loading import ConversionOps

from ...nn.linear import Linear
from ...quantization.conv1d import as_linear, is_conv1d
from .config import MixedGemmConfig


class QuantizeWeight(ConversionOps):
    """Turns "layer.weight" into a ``mixed_gemm.Linear`` in the place of the layer; nothing is left
    for transformers to set."""

    def __init__(self, config: MixedGemmConfig) -> None:
        self._config = config

    def convert(
        self,
        input_dict: dict[str, Any],
        full_layer_name: str = "",
        model: Any = None,
        missing_keys: set[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        (value,) = input_dict.values()
        weight = value[0] if isinstance(value, list) else value
        name = full_layer_name.removesuffix(".weight")
        module, conv1d = model.get_submodule(name), False
        if is_conv1d(module):
            module, weight, conv1d = as_linear(module), weight.t(), True
        linear = nn.Linear(module.in_features, module.out_features, bias=False, device="meta")
        linear.weight = nn.Parameter(weight, requires_grad=False)
        linear.bias = module.bias  # on meta until transformers has read it
        try:
            new = Linear.from_float(linear, self._config.scheme_for(linear.in_features))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        new.is_conv1d = conv1d
        new.weight._is_hf_initialized = True  # type: ignore[attr-defined]
        model.set_submodule(name, new)
        if missing_keys is not None:
            missing_keys.discard(full_layer_name)
        return {}
