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
from ..formats.layer import LayerTensors
from ..formats.load import Wanted
from ..nn.linear import Linear
from ..ops.problem import ZERO_MODES
from ..weights.columns import with_zeros
from ..weights.exchange_rules import group_columns
from ..weights.scheme import Scheme
from ..weights.tensor import QuantizedTensor
from .read import ROWS, ShardOf, read_shard
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
    # The groups, or blocks, of a shard may be smaller than those of the whole weight.
    grouped = Wanted(**options).grouped_as(info)
    scheme = shard.scheme.with_group_size(group_columns(grouped, shape[1]))
    if (block := grouped.weights.block) is not None:
        scheme = replace(scheme, weights=replace(scheme.weights, block=block))
    return linear_of(shard, bias, mesh, dim, shape, scheme)
