"""Quantize one weight at the moment transformers has read it, so that the model is never in memory
unquantized.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers.core_model_loading import ConversionOps

from ..._freed import packed
from ...nn.embedding import Embedding
from ...nn.linear import Linear
from ...quantization.conv1d import as_linear, is_conv1d
from ...weights.kinds import kind_of
from ...weights.scheme import Scheme
from .dense import Chosen
from .pending import STYLE


class QuantizeWeight(ConversionOps):
    """Turns "layer.weight" into a ``mixed_gemm.Linear`` in the place of the layer; nothing is left
    for transformers to set."""

    def __init__(self, chosen: Chosen) -> None:
        self._chosen = chosen

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
        module, conv1d, scheme = model.get_submodule(name), False, self._chosen.schemes[name]
        if isinstance(module, nn.Embedding):
            table = self._embedding(name, module, weight)
            return self._placed(model, name, full_layer_name, table, missing_keys)
        if is_conv1d(module):
            module, weight, conv1d = as_linear(module), weight.t(), True
        if isinstance(sharded := getattr(module, STYLE, None), tuple):
            try:
                new = self._shard(module, weight, scheme, *sharded)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
            return self._placed(model, name, full_layer_name, new, missing_keys)
        linear = nn.Linear(module.in_features, module.out_features, bias=False, device="meta")
        linear.weight = nn.Parameter(weight, requires_grad=False)
        linear.bias = module.bias  # on meta until transformers has read it
        try:
            new = Linear.from_float(linear, scheme)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        new.is_conv1d = conv1d
        return self._placed(model, name, full_layer_name, new, missing_keys)

    def _placed(
        self,
        model: Any,
        name: str,
        key: str,
        new: Linear | Embedding,
        missing_keys: set[str] | None,
    ) -> dict[str, Any]:
        new.weight._is_hf_initialized = True
        model.set_submodule(name, new)
        packed(new.weight.numel() * new.weight.dtype.itemsize)
        if missing_keys is not None:
            missing_keys.discard(key)
        return {}

    def _embedding(self, name: str, module: nn.Embedding, weight: Tensor) -> Embedding:
        rows, columns = weight.shape
        dense = nn.Embedding(rows, columns, module.padding_idx, device="meta")
        dense.weight = nn.Parameter(weight, requires_grad=False)
        asked = None if name in self._chosen.rows else self._chosen.schemes[name]
        try:
            return Embedding.from_float(dense, asked)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error

    def _shard(self, module: Any, weight: Tensor, scheme: Scheme, style: Any, mesh: Any) -> Linear:
        """A layer of this rank's shard.

        Args:
            scheme: of the whole layer.
            weight: dense, that shard; or all of the weight, where scales are of all of it.
        """
        from ...distributed.layers import linear_of, shard_on
        from .sharding import dim_of, install

        shape, dim = (module.out_features, module.in_features), dim_of(style)
        shard = shard_on(mesh, dim, shape[dim])
        kind: Any = kind_of("MixedGemmConfig", scheme, shape)
        made = kind.from_float(weight, scheme)
        if tuple(weight.shape) == shape and mesh.size() > 1:
            made = made.cut(dim, shard.start, shard.stop)
        new = linear_of(made, None, mesh, dim, shape, scheme)
        new.register_parameter("bias", module.bias)  # a placeholder until transformers has read it
        install(style, new, mesh)
        return new
