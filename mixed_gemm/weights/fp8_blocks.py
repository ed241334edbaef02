"""Which float8 weights share a scale: whole rows of them, or blocks; and what becomes of the blocks
where a weight is cut into shards: smaller ones with the same scales, so that no value changes.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from ..ops.problem import ceil_div
from .rounding_fp8 import quantize_weight_fp8
from .scheme import Scheme

Block = tuple[int, int]  # rows, columns


def block_of(scheme: Scheme, shape: tuple[int, ...]) -> Block | None:
    """Rows and columns that share a scale, where those are stored by block; None where there is one
    for each output channel (of a whole weight: the same one)."""
    side = scheme.weights
    if side.strategy == "group":
        return 1, side.group_size or shape[1]
    return side.block


def scheme_of_shard(scheme: Scheme, shape: tuple[int, ...], dim: int, *edges: int) -> Scheme:
    """The scheme of a shard whose edges along ``dim`` are these: none of its blocks is cut in two.
    Shards of one size get one scheme, wherever they lie, which scattering them needs."""
    block = block_of(scheme, shape)
    if block is None:
        return scheme
    size, side = math.gcd(block[dim], *edges), scheme.weights
    if side.strategy == "group":
        return replace(scheme, weights=replace(side, group_size=size if dim == 1 else block[1]))
    smaller = (size, block[1]) if dim == 0 else (block[0], size)
    return replace(scheme, weights=replace(side, block=smaller))


def scales_of_shard(scales: Tensor, block: Block, dim: int, size: int, edges: Block) -> Tensor:
    """The scales of the shard from edges[0] to edges[1] along ``dim``, with blocks of ``size``.

    Args:
        scales: ``[rows of blocks, columns of blocks]``.
    """
    firsts = torch.arange(*edges, size, device=scales.device)
    return scales.index_select(dim, firsts // block[dim])


def joined(shards: list[tuple[Tensor, Block, int]]) -> tuple[Tensor, int]:
    """(scales of shards below each other, rows of their blocks): those that all can be stored in.

    Args:
        shards: (scales, block, number of rows) of each.
    """
    rows = math.gcd(*(block[0] for _, block, _ in shards), *(n for _, _, n in shards[:-1]))
    finer = [
        scales.repeat_interleave(block[0] // rows, 0)[: ceil_div(n, rows)]
        for scales, block, n in shards
    ]
    return torch.cat(finer), rows


def scheme_with_rows(scheme: Scheme, rows: int) -> Scheme:
    """The same with ``rows`` of the weight in a block, where it has blocks."""
    side = scheme.weights
    if side.block is None:
        return scheme
    return replace(scheme, weights=replace(side, block=(rows, side.block[1])))


def joined_columns(shards: list[tuple[Tensor, Block, int]]) -> tuple[int, Tensor]:
    """(columns of a block that all shards, laid beside each other, can be stored in, its scales).

    Args:
        shards: (scales ``[rows of blocks, columns of blocks]``, block, number of columns) of each.
    """
    size = math.gcd(*(block[1] for _, block, _ in shards), *(k for _, _, k in shards[:-1]))
    finer = [
        scales.index_select(1, torch.arange(0, k, size, device=scales.device) // block[1])
        for scales, block, k in shards
    ]
    return size, torch.cat(finer, 1)


def rounded(weight: Tensor, scheme: Scheme, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """(float8_e4m3fn ``[N, K]``, scales in ``dtype``: ``[N]`` where there are no blocks).

    Args:
        weight: float16, bfloat16 or float32 ``[N, K]``.
    """
    shape = tuple(weight.shape)
    block = block_of(scheme, shape)
    if block is not None:
        return quantize_weight_fp8(weight, block, scale_dtype=dtype)
    rows = shape[0] if scheme.weights.strategy == "tensor" else 1
    q, scale = quantize_weight_fp8(weight, (rows, shape[1]), scale_dtype=dtype)
    return q, scale.reshape(-1).expand(shape[0]).contiguous()
