"""transformers' tensor parallelism (``DistributedConfig(tp_plan="auto")``) of quantized layers: its
own styles do the communication, and each rank reads and quantizes its shard only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from torch import nn
from transformers.distributed.parallel_utils import (
    ALL_PARALLEL_STYLES,
    replace_layer_number_by_wildcard,
)
from transformers.distributed.tensor_parallel import (
    ColwiseParallel,
    RowwiseParallel,
    TensorParallelLayer,
)

from ...distributed.read import COLUMNS, ROWS
from ...nn.linear import Linear
from ...weights.act_order import ActOrderColumns
from ...weights.scheme import Scheme
from .pending import STYLE, PendingLinear

_PREFIX = "mixed_gemm_"
_LINEAR = (ColwiseParallel, RowwiseParallel)


class _Shards(TensorParallelLayer):
    """A style of transformers for layers that are not quantized yet.

    Args:
        base: the style.
    """

    def __init__(self, base: TensorParallelLayer) -> None:
        self.base = base

    def shard_param(self, module: nn.Module, param: str, mesh: Any) -> None:
        """A placeholder reads its shard itself; a layer whose shard is rounded otherwise than the
        whole is read whole."""
        if isinstance(module, PendingLinear) or _is_table(module):
            return
        scheme_of = getattr(module, STYLE, None)
        if param == "weight" and scheme_of is not None:
            weight = module._parameters["weight"]
            if not rounds_alike(scheme_of, tuple(weight.shape), dim_of(self.base), mesh.size()):  # type: ignore[union-attr]
                return
        self.base.shard_param(module, param, mesh)

    def install_forward(self, module: nn.Module, mesh: Any) -> nn.Module:
        """Raises ValueError where the style is neither "colwise" nor "rowwise", nor a kind of
        them."""
        ours = isinstance(module, PendingLinear)
        if _is_table(module):
            return module  # whole on every rank
        if (ours or hasattr(module, STYLE)) and not isinstance(self.base, _LINEAR):
            raise ValueError(
                f"mixed_gemm: tp_plan has a {type(self.base).__name__} for a layer that is "
                "quantized, which takes colwise and rowwise ones only. Hint: leave it dense with "
                "modules_to_not_convert"
            )
        if isinstance(module, PendingLinear):
            module.distribute(self.base, mesh)
            return module
        if hasattr(module, STYLE):
            setattr(module, STYLE, (self.base, mesh))
        found: nn.Module = self.base.install_forward(module, mesh)
        return found


def _is_table(module: nn.Module) -> bool:
    """Whether it stands for an embedding that is going to be quantized: whole on every rank."""
    if isinstance(module, PendingLinear):
        return module.is_embedding
    return isinstance(module, nn.Embedding) and hasattr(module, STYLE)


class _OnPlainShards(TensorParallelLayer):
    """Around the forward of a layer whose weight is sharded, where activations are local tensors:
    the layer multiplies by the plain parts of its shard. transformers would replace the parameters
    for the time of the call, and a graph of torch.compile have the DTensors for inputs."""

    adds_bias: ClassVar[bool]  # before the results of the ranks are put together

    def context_around_forward(self, module: nn.Module, mesh: Any) -> Any:
        if self.should_use_local_tensors(module) and module.plain_weight is not None:
            return _on_plain_shard(module, self.adds_bias)
        return super().context_around_forward(module, mesh)


class _Colwise(_OnPlainShards, ColwiseParallel):
    adds_bias: ClassVar[bool] = True


class _Rowwise(_OnPlainShards, RowwiseParallel):
    adds_bias: ClassVar[bool] = False


@contextmanager
def _on_plain_shard(module: Any, adds_bias: bool) -> Iterator[None]:
    sharded, bias = module.plain_weight, module.plain_bias
    module.plain_weight = sharded.shard
    module.plain_bias = bias.to_local() if adds_bias and bias is not None else None
    try:
        yield
    finally:
        module.plain_weight, module.plain_bias = sharded, bias


class _OnDTensors(RowwiseParallel):
    """Without the short cut around DTensor: columns in act-order take activations of the whole
    width, which ``mixed_gemm.Linear`` gathers."""

    def should_use_local_tensors(self, module: nn.Module) -> bool:
        return False


def dim_of(style: TensorParallelLayer) -> int:
    """Return the dimension of the weight that a style cuts."""
    return ROWS if isinstance(style, ColwiseParallel) else COLUMNS


def install(style: TensorParallelLayer, layer: Linear, mesh: Any) -> None:
    """Let a style communicate around a layer whose weight is sharded.

    Args:
        style: "colwise" or "rowwise" of transformers.
    """
    shard = layer.weight._local_tensor  # type: ignore[attr-defined]
    kind = {ColwiseParallel: _Colwise, RowwiseParallel: _Rowwise}.get(type(style))
    if isinstance(shard, ActOrderColumns):
        kind = _OnDTensors
    if kind is not None:
        style = kind(
            input_layouts=style.input_layouts,
            output_layouts=style.output_layouts,
            use_local_output=style.use_local_output,
        )
    style.install_forward(layer, mesh)


def rounds_alike(scheme: Scheme, shape: tuple[int, ...], dim: int, ranks: int) -> bool:
    """Whether a shard of a dense weight rounds as the whole one does: no scale is for more."""
    side, shard = scheme.weights, shape[dim] / ranks
    if side.strategy == "tensor":
        return False
    if side.block is not None:
        return shard % side.block[dim] == 0
    if dim == ROWS:
        return shard == int(shard)
    return scheme.group_size != -1 and shard % scheme.group_size == 0


def let_layers_be_sharded(
    model: nn.Module, plan: dict[str, str], quantized: dict[str, Any]
) -> None:
    """Put our styles in the place of transformers' where a rule is for quantized layers.

    Args:
        plan: rule -> style, changed in place.
        quantized: name of a layer -> how it will be stored, where it is still dense; else None.
    """
    rules = {replace_layer_number_by_wildcard(name) for name in quantized}
    for rule in rules & plan.keys():
        name = plan[rule].removeprefix(_PREFIX)
        style = ALL_PARALLEL_STYLES[name]
        if name == "replicate":
            continue
        ALL_PARALLEL_STYLES.register(_PREFIX + name, _Shards(style))
        plan[rule] = _PREFIX + name
    for name, scheme in quantized.items():
        if scheme is not None and replace_layer_number_by_wildcard(name) in rules & plan.keys():
            setattr(model.get_submodule(name), STYLE, scheme)
