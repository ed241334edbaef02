"""One rank's share of a quantized layer of a checkpoint, as a module whose weight is a DTensor."""

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
from ..nn.linear import Linear
from ..weights.columns import with_zeros
from ..weights.scheme import Scheme
from ..weights.tensor import QuantizedTensor
from .read import ROWS, Span, read_share
from .weight import spread


def span_of(mesh: Any, dim: int, extent: int) -> Span:
    """Which rows (dim 0) or columns (dim 1) this rank has, as ``torch.chunk`` shares them out."""
    size = -(-extent // mesh.size())
    start = min(mesh.get_local_rank() * size, extent)
    return Span(dim, start, min(start + size, extent))


def linear_of(
    share: QuantizedTensor, bias: Tensor | None, mesh: Any, dim: int, shape: tuple[int, int],
    scheme: Scheme,
) -> Linear:  # fmt: skip
    """A module around this rank's share.

    Args:
        share: some rows (dim 0) or columns (dim 1) of a weight of ``shape``.
        bias: of those rows, or all of it.
        mesh: one-dimensional. scheme: of the whole weight.
    """
    weight = spread(share, mesh, [Shard(dim)], shape)
    if bias is None:
        return Linear.of_share(weight, None, scheme)
    placement: Placement = Shard(0) if dim == ROWS else Replicate()
    whole = DTensor.from_local(
        bias, mesh, [placement], run_check=False, shape=torch.Size(shape[:1]), stride=(1,)
    )
    return Linear.of_share(weight, whole, scheme)


def agreed(share: QuantizedTensor, mesh: Any) -> QuantizedTensor:
    """With zero points of 0 where other ranks' shares have some: a share without any is read as
    symmetric."""
    if not share.scheme.is_weight_only:
        return share
    has = torch.tensor([int(share.scheme.has_zeros)], device=share.device)
    dist.all_reduce(has, dist.ReduceOp.MAX, group=mesh.get_group())
    return with_zeros(share) if int(has) and not share.scheme.has_zeros else share


def read_linear(
    index: TensorIndex, codec: Codec, name: str, mesh: Any, dim: int, **options: Any
) -> Linear:
    """This rank's share of a layer. Every rank of the mesh has to call it.

    Args:
        index, codec: of the checkpoint. name: of the layer.
        mesh: one-dimensional. dim: 0 shares output channels out, 1 columns of K.
        options: of ``read_share``.

    Raises:
        What ``read_share`` raises.
    """
    info = codec.describe(LayerTensors(index, name))
    shape = (info.out_features, info.in_features)
    share, bias = read_share(index, codec, name, span_of(mesh, dim, shape[dim]), **options)
    device = torch.device(mesh.device_type)
    share = agreed(share.with_parts(lambda part: part.to(device)), mesh)
    bias = None if bias is None else bias.to(device)
    # The groups, or blocks, of a share may be smaller than those of the whole weight.
    scheme = share.scheme.with_group_size(info.group_size)
    if info.block is not None:
        scheme = replace(scheme, weights=replace(scheme.weights, block=info.block))
    return linear_of(share, bias, mesh, dim, shape, scheme)
