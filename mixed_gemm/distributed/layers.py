"""One rank's shard of a quantized layer of a checkpoint, as a module whose weight is a DTensor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement

from ..formats.codec import Codec
from ..formats.index import TensorIndex
from ..formats.layer import LayerInfo, LayerTensors
from ..formats.load import Wanted
from ..nn.linear import Linear
from ..ops.problem import ZERO_MODES
from ..weights.columns import with_zeros
from ..weights.exchange_rules import group_columns
from ..weights.scheme import Scheme
from ..weights.tensor import QuantizedTensor
from .gathering import own_part
from .local_linear import LocalLinear
from .read import COLUMNS, ROWS, ShardOf, read_shard
from .weight import distribute


def shard_on(mesh: Any, dim: int, extent: int) -> ShardOf:
    """Which rows (dim 0) or columns (dim 1) this rank has, as ``torch.chunk`` splits them."""
    size = -(-extent // mesh.size())
    start = min(mesh.get_local_rank() * size, extent)
    return ShardOf(dim, start, min(start + size, extent))


def linear_of(
    shard: QuantizedTensor, bias: Tensor | None, mesh: Any, dim: int, shape: tuple[int, int],
    scheme: Scheme,
) -> Linear:  # fmt: skip
    """A module around this rank's shard.

    Args:
        shard: some rows (dim 0) or columns (dim 1) of a weight of ``shape``.
        bias: of those rows, or all of it.
        mesh: one-dimensional. scheme: of the whole weight.
    """
    weight = distribute(shard, mesh, [Shard(dim)], shape)
    if bias is None:
        return Linear.of_shard(weight, None, scheme)
    placement: Placement = Shard(0) if dim == ROWS else Replicate()
    whole = DTensor.from_local(
        bias, mesh, [placement], run_check=False, shape=torch.Size(shape[:1]), stride=(1,)
    )
    return Linear.of_shard(weight, whole, scheme)


def agreed(shard: QuantizedTensor, mesh: Any) -> QuantizedTensor:
    """With zero points of 0 where other ranks' shards have some, in their zero mode: a shard
    without any is read as symmetric."""
    if not shard.scheme.is_weight_only:
        return shard
    mode = torch.tensor([ZERO_MODES.index(shard.scheme.zero_mode)], device=shard.device)
    dist.all_reduce(mode, dist.ReduceOp.MAX, group=mesh.get_group())
    found = ZERO_MODES[int(mode)]
    return shard if shard.scheme.zero_mode == found else with_zeros(shard, found)


def read_linear(
    index: TensorIndex, codec: Codec, name: str, mesh: Any, dim: int, **options: Any
) -> Linear:
    """This rank's shard of a layer. Every rank of the mesh has to call it.

    Args:
        index, codec: of the checkpoint. name: of the layer.
        mesh: one-dimensional. dim: 0 splits output channels, 1 columns of K.
        options: of ``read_shard``.

    Raises:
        What ``read_shard`` raises.
    """
    info = codec.describe(LayerTensors(index, name))
    shape = (info.out_features, info.in_features)
    shard, bias = read_shard(index, codec, name, shard_on(mesh, dim, shape[dim]), **options)
    device = torch.device(mesh.device_type)
    shard = agreed(shard.with_parts(lambda part: part.to(device)), mesh)
    bias = None if bias is None else bias.to(device)
    scheme = _scheme_of_whole(shard.scheme, info, options)
    return linear_of(shard, bias, mesh, dim, shape, scheme)


def read_local(
    index: TensorIndex, codec: Codec, name: str, mesh: Any, shard: ShardOf, **options: Any
) -> LocalLinear:
    """This rank's shard of an expert's linear. Every rank of the mesh has to call it.

    Args:
        index, codec: of the checkpoint. name: of the layer.
        mesh: one-dimensional. shard: of this rank, of any size. options: of ``read_shard``.

    Raises:
        What ``read_shard`` raises.
    """
    info = codec.describe(LayerTensors(index, name))
    weight, bias = read_shard(index, codec, name, shard, **options)
    device = torch.device(mesh.device_type)
    weight = agreed(weight.with_parts(lambda part: part.to(device)), mesh)
    if bias is not None and shard.dim == COLUMNS:
        bias = own_part(bias, mesh, shard)
    bias = None if bias is None else bias.to(device)
    shape = (info.out_features, info.in_features)
    scheme = _scheme_of_whole(weight.scheme, info, options)
    return LocalLinear.of(weight, bias, mesh, shard.dim, shape, scheme)


def _scheme_of_whole(scheme: Scheme, info: LayerInfo, options: Any) -> Scheme:
    """The scheme of a weight by that of a shard, whose groups, or blocks, may be smaller."""
    grouped = Wanted(**options).grouped_as(info)
    scheme = scheme.with_group_size(group_columns(grouped, info.in_features))
    if (block := grouped.weights.block) is not None:
        scheme = replace(scheme, weights=replace(scheme.weights, block=block))
    return scheme
