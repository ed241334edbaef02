"""Which columns of a weight ``[N, K]`` share a scale once it is cut along K: where a cut would go
through a group, the groups of the shard are smaller ones with the same scales, so that no value
changes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..ops.errors import ArgumentValueError
from ..ops.problem import GROUP_STEP

if TYPE_CHECKING:
    from .tensor import QuantizedTensor


def group_of_shard(size: int, k: int, start: int, stop: int) -> int:
    """Columns that share a scale in the shard ``start`` to ``stop``. Shards of one size get the
    same, wherever they lie, which scattering them over processes needs.

    Args:
        size: columns of a group of the whole weight, -1 for all of them.
        k: columns of the whole weight; its last group may be ragged.

    Raises:
        ValueError: no multiple of 16 divides ``size`` and both edges, and one cuts a group.
    """
    if size == -1 or (start, stop) == (0, k):
        return size
    smaller = math.gcd(size, start, stop)
    if smaller % GROUP_STEP == 0:
        return smaller
    if start % size == 0 and (stop % size == 0 or stop == k):
        return size
    raise ArgumentValueError(
        f"QuantizedTensor: columns {start} to {stop} of {k} cut a group of {size} that shares a "
        f"scale, and their edges are no multiples of {GROUP_STEP}, which smaller groups would "
        f"need. Hint: shard over fewer ranks, or quantize with a group_size that divides "
        f"{stop - start}"
    )


def of_shard(values: Tensor, size: int, smaller: int, start: int, stop: int) -> Tensor:
    """The scales, or zero points, of the shard ``start`` to ``stop``, with storage of their own.

    Args:
        values: ``[G, N]``, a row for each group of ``size`` columns; -1 is one group.
        smaller: columns of a group of the shard, which divides ``size``.
    """
    if size == -1:
        return values.clone()
    firsts = torch.arange(start, stop, smaller, device=values.device)
    return values.index_select(0, firsts // size)


def common_group(shards: list[tuple[int, int]]) -> int:
    """The largest group that all shards, laid beside each other, can be stored in: -1 where it is
    one shard.

    Args:
        shards: (columns of a group, or -1; columns) of each.

    Raises:
        ValueError: no multiple of 16 does.
    """
    if len(shards) == 1:
        return shards[0][0]
    sizes = [k if size == -1 else size for size, k in shards]
    found = math.gcd(*sizes, *(k for _, k in shards[:-1]))
    if found % GROUP_STEP:
        raise ArgumentValueError(
            f"QuantizedTensor: pieces of {[k for _, k in shards]} columns with groups of {sizes} "
            f"have no groups of a multiple of {GROUP_STEP} in common"
        )
    return found


def beside_each_other(shards: list[tuple[Tensor, int, int]], size: int) -> Tensor:
    """The scales, or zero points, of shards that are joined along K.

    Args:
        shards: (``[G, N]``, columns of a group or -1, columns) of each.
        size: columns of a group of the whole, from :func:`common_group`.
    """
    if size == -1:
        return shards[0][0]
    rows = []
    for values, group, k in shards:
        firsts = torch.arange(0, k, size, device=values.device)
        rows.append(values.index_select(0, firsts // (k if group == -1 else group)))
    return torch.cat(rows)


def coarser(values: Tensor, fine: int, size: int, k: int) -> Tensor:
    """Values of groups of ``size`` columns, which repeat in the groups of ``fine`` columns given.

    Args:
        values: ``[ceil(k / fine), N]``. size: a multiple of ``fine``, or -1 for all columns.

    Raises:
        ValueError: groups that are to share a scale have several.
    """
    if fine in (size, -1):
        return values
    firsts = torch.arange(0, k, k if size == -1 else size, device=values.device)
    found = values.index_select(0, firsts // fine)
    wide = torch.arange(0, k, fine, device=values.device) // (k if size == -1 else size)
    if not torch.equal(found.index_select(0, wide), values):
        raise ArgumentValueError(
            f"QuantizedTensor: columns that are to share a scale in groups of {size} have several"
        )
    return found


def with_zeros(weight: QuantizedTensor, zero_mode: str) -> QuantizedTensor:
    """A symmetric integer weight with zero points, all of them 0.

    Args:
        weight: ``[N, K]`` of a weight-only scheme. zero_mode: of the result.
    """
    scheme, parts = weight.scheme, weight.tensors()
    found = scheme.grouped(scheme.group_size, zero_mode)
    zeros = torch.zeros_like(parts["scales"])
    return type(weight)({**parts, "zeros": zeros}, found, weight.shape, weight.dtype)
