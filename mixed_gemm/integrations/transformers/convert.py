"""Quantize one weight at the moment transformers has read it, so that the model is never in memory
unquantized.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers.core_model_loading import ConversionOps

from ...nn.linear import Linear
from ...quantization.conv1d import as_linear, is_conv1d
from ...weights.kinds import kind_of
from .config import MixedGemmConfig
from .pending import STYLE


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
        if isinstance(spread := getattr(module, STYLE, None), tuple):
            try:
                new = self._share(module, weight, *spread)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
            return self._placed(model, name, full_layer_name, new, missing_keys)
        linear = nn.Linear(module.in_features, module.out_features, bias=False, device="meta")
        linear.weight = nn.Parameter(weight, requires_grad=False)
        linear.bias = module.bias  # on meta until transformers has read it
        try:
            new = Linear.from_float(linear, self._config.scheme_for(linear.in_features))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        new.is_conv1d = conv1d
        return self._placed(model, name, full_layer_name, new, missing_keys)

    def _placed(
        self, model: Any, name: str, key: str, new: Linear, missing_keys: set[str] | None
    ) -> dict[str, Any]:
        new.weight._is_hf_initialized = True
        model.set_submodule(name, new)
        if missing_keys is not None:
            missing_keys.discard(key)
        return {}

    def _share(self, module: Any, weight: Tensor, style: Any, mesh: Any) -> Linear:
        """Make a layer of this rank's share.

        Args:
            weight: dense, that share; or all of the weight, where scales are of all of it.
        """
        from ...parallel.shares import linear_of, span_of
        from .spreading import dim_of, install

        shape, dim = (module.out_features, module.in_features), dim_of(style)
        scheme, span = self._config.scheme_for(shape[1]), span_of(mesh, dim, shape[dim])
        kind: Any = kind_of("MixedGemmConfig", scheme, shape)
        made = kind.from_float(weight, scheme)
        if tuple(weight.shape) == shape and mesh.size() > 1:
            made = made.cut(dim, span.start, span.stop)
        new = linear_of(made, None, mesh, dim, shape, scheme)
        new.register_parameter("bias", module.bias)  # a placeholder until transformers has read it
        install(style, new, mesh)
        return new
