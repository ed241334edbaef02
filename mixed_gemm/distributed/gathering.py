"""Plain tensors whose parts lie on several ranks, of any sizes, and what they are together."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .read import ROWS, ShardOf


def own_part(bias: Tensor, mesh: Any, shard: ShardOf) -> nn.Parameter:
    """Cut from a bias what this rank adds: the part of its rows, or all of it on the first rank
    that has columns.

    Args:
        bias: ``[N]``. mesh: one-dimensional. shard: of the weight.
    """
    adds = shard.dim == ROWS or mesh.get_local_rank() == 0
    start, stop = (shard.start, shard.stop) if shard.dim == ROWS else (0, len(bias))
    part = bias.detach()[start : stop if adds else start]
    return nn.Parameter(part.clone(), requires_grad=bias.requires_grad)


def together(part: Tensor, mesh: Any, dim: int) -> Tensor:
    """The parts of all ranks behind each other; every rank has to call it.

    Args:
        part: this rank's. mesh: one-dimensional. dim: along which they lie.
    """
    parts: list[Any] = [None] * mesh.size()
    dist.all_gather_object(parts, part.cpu(), group=mesh.get_group())
    return torch.cat(parts, dim).to(part.device)


def part_of(given: Tensor, like: Tensor, mesh: Any, dim: int) -> Tensor:
    """The part of this rank of what every rank has whole.

    Args:
        given: of all ranks. like: of this rank, by whose extent it is cut.
        mesh: one-dimensional. dim: along which parts lie.
    """
    extents: list[Any] = [None] * mesh.size()
    dist.all_gather_object(extents, like.shape[dim], group=mesh.get_group())
    if given.shape[dim] != sum(extents):
        return given  # whose shape torch's own code refuses
    start = sum(extents[: mesh.get_local_rank()])
    return given.narrow(dim, start, like.shape[dim])
