"""The plain parts of this rank's shard of a weight that a DTensor shards over ranks.

A DTensor is a tensor subclass, and costs a compiled graph as much as any other among its inputs.
Where a linear layer is cut as tensor parallelism cuts it, the shard is multiplied as it is, and
only activations and results, which are made inside the graph, are DTensors.

Imported only where there is such a weight: it imports torch.distributed.tensor.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Shard
from torch.distributed.tensor.placement_types import Placement

from ..weights.act_order import ActOrderColumns
from ..weights.shards import answers
from ..weights.tensor import QuantizedTensor
from .weight import linear

_ROWS, _COLUMNS = 0, 1  # dimensions of a weight [N, K]


@answers
def plain_shard(weight: Any) -> PlainShard | None:
    """The plain parts that a linear layer multiplies by in place of ``weight``.

    Args:
        weight: a DTensor ``[N, K]`` of quantized shards.

    Returns:
        None where it is not cut evenly over a mesh of one dimension: the weight itself is
        multiplied by then.
    """
    mesh, shard = weight.device_mesh, weight._local_tensor
    if mesh.ndim != 1 or weight.dim() != 2 or type(weight.placements[0]) is not Shard:
        return None
    dim = weight.placements[0].dim % 2
    even = weight.shape[dim] == shard.shape[dim] * mesh.size()
    return PlainShard(weight, dim) if even else None


class PlainShard:
    """A shard of the rows or of the columns of a weight ``[N, K]``, as plain tensors.

    It holds a weak reference to the DTensor, so that ``torch.utils.swap_tensors`` refuses to
    exchange what this is made of; a module that converts its parameters lets go of it before.
    """

    def __init__(self, weight: DTensor, dim: int) -> None:
        shard: Any = weight._local_tensor
        self.whole, self.mesh, self.dim = weight, weight.device_mesh, dim
        self.adds_bias = dim == _ROWS or self.mesh.get_local_rank() == 0  # once in a sum over ranks
        self._guard = weakref.ref(weight)
        self.order = shard.permutation if isinstance(shard, ActOrderColumns) else None
        self._kept = shard if self.order is None else shard.in_order()
        self.shard: Any = self._kept.plain()  # a PlainWeight
        self.told: QuantizedTensor = shard

    def held_by(self, module: Any) -> None:
        """Tell ``module`` by its method ``follow_weight`` when the shard becomes another one."""
        self.told.plain().held_by(module)

    def product(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """``x @ w.T + bias`` as torch's operators on DTensors give it.

        Args:
            x: a DTensor ``[..., K]``. bias: a DTensor ``[N]``, or None.

        Returns:
            ``[..., N]``: a DTensor that is cut along its last dimension where the rows of the
            weight are, and a ``Partial`` one where its columns are.
        """
        trains = bias is not None and bias.requires_grad and torch.is_grad_enabled()
        if not self._takes(x) or (trains and self.dim == _COLUMNS):
            return linear(x, self.whole, bias)
        given: Any = x
        summed: list[Placement] = [Partial()]  # a gradient, or a result, over the ranks
        if self.dim == _COLUMNS and self.order is None:
            here = given.to_local()
        else:
            here = given.to_local(grad_placements=summed)
        if self.dim == _ROWS:
            out = self.shard.product(here, _local(bias))
            return DTensor.from_local(out, self.mesh, [Shard(out.dim() - 1)], run_check=False)
        if self.order is not None:
            here = here.index_select(-1, self.order)
        out = self.shard.product(here, _local(bias) if self.adds_bias else None)
        return DTensor.from_local(out, self.mesh, summed, run_check=False)

    def _takes(self, x: Any) -> bool:
        """Whether activations come as they are needed; torch's operators find out what to send
        where they do not."""
        if not isinstance(x, DTensor) or x.device_mesh != self.mesh:
            return False
        if self.dim == _ROWS or self.order is not None:
            return x.placements[0].is_replicate()
        return x.placements[0].is_shard(x.dim() - 1)


def _local(bias: Any) -> Any:
    return bias.to_local() if isinstance(bias, DTensor) else bias
