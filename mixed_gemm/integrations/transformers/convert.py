"""Quantize one weight at the moment transformers has read it, so that the model is never in memory
unquantized.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers.core_model_loading import ConversionOps

from ..._freed import packed
from ...nn.bare import linear_around
from ...nn.embedding import Embedding
from ...nn.linear import Linear
from ...nn.own_embedding import dense_like
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
        if isinstance(module, nn.Linear) and (asked := _shard_asked(module)) is not None:
            return self._of_expert(model, name, weight, *asked, missing_keys)
        if isinstance(sharded := getattr(module, STYLE, None), tuple):
            try:
                new = self._shard(module, weight, scheme, *sharded)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
            return self._placed(model, name, full_layer_name, new, missing_keys)
        linear = linear_around(weight, module.bias)  # on meta until transformers has read it
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
        dense = dense_like(module, weight)
        asked = None if name in self._chosen.rows else self._chosen.schemes[name]
        try:
            return Embedding.from_float(dense, asked)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error

    def _of_expert(
        self, model: Any, name: str, weight: Tensor, shard: Any, mesh: Any, *rest: Any
    ) -> dict[str, Any]:
        """The shard of an expert's linear that this rank has, whose whole weight is read and
        rounded, so that it is that of one process; nothing where another rank has the expert."""
        from ...distributed.local_linear import LocalLinear
        from ...distributed.told import Elsewhere

        module = model.get_submodule(name)
        if shard.start == shard.stop:
            model.set_submodule(name, Elsewhere(module))
            for missing in rest:
                if missing is not None:
                    missing.discard(f"{name}.weight")
            return {}
        scheme, shape = self._chosen.schemes[name], (module.out_features, module.in_features)
        try:
            made = kind_of("MixedGemmConfig", scheme, shape).from_float(weight, scheme)
            whole = made.scheme
            if (shard.start, shard.stop) != (0, shape[shard.dim]):
                made = made.cut(shard.dim, shard.start, shard.stop)
            new = LocalLinear.of(made, None, mesh, shard.dim, shape, whole)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        new.register_parameter("bias", module.bias)  # all of it, once transformers has read it
        return self._placed(model, name, f"{name}.weight", new, *rest)

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


def is_elsewhere(module: Any) -> bool:
    """Whether another rank has a linear of an expert.

    Args:
        module: in its place, dense.
    """
    asked = _shard_asked(module)
    return asked is not None and asked[0].start == asked[0].stop


def _shard_asked(module: nn.Module) -> Any:
    """The rows or columns that this rank has of an expert's linear, and the mesh; None of any other
    layer."""
    found = getattr(module, STYLE, None)
    if not isinstance(found, tuple):
        return None
    from ...distributed.read import ShardOf

    return found if isinstance(found[0], ShardOf) else None
