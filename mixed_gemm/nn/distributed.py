"""Tensor parallelism: slices of a ``mixed_gemm.Linear`` for one rank (``colwise``, ``rowwise``),
and DTensor sharding rules of ``fpA_intB_gemm``, which importing this module registers.

Not imported by ``import mixed_gemm``: torch.distributed.tensor takes 0.7 s to import.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

from .. import _library
from ..ops.problem import PAD_N
from .linear import Linear


def _slice(total: int, rank: int, world: int, unit: int, what: str) -> slice:
    if not 0 <= rank < world:
        raise ValueError(f"rank must be in 0..{world - 1}, got {rank}")
    if total % (world * unit) != 0:
        raise ValueError(
            f"{what}={total} must be a multiple of {unit} for each of {world} ranks. Hint: fewer "
            "ranks, or keep this layer whole"
        )
    size = total // world
    return slice(rank * size, (rank + 1) * size)


def colwise(linear: Linear, rank: int, world: int) -> Linear:
    """The output channels of one rank: its output is ``linear``'s, cut along the last dimension.

    Args:
        linear: the whole layer. rank: of this process in the group. world: size of the group.

    Raises:
        ValueError: out_features is not a multiple of ``world``.
    """
    whole = linear.to_quantized_weight()
    part = _slice(linear.out_features, rank, world, 1, "out_features")
    return Linear.from_quantized(
        whole.q[part],
        whole.scales[:, part],
        None if whole.zeros is None else whole.zeros[:, part],
        None if linear.bias is None else linear.bias.detach()[part].clone(),
        whole.pre_scale,
        whole.permutation,
        bits=linear.bits,
        group_size=linear.group_size,
        zero_mode="sub" if whole.zeros is None else linear.zero_mode,
    )


class _SumOverRanks(torch.autograd.Function):
    """Every rank's loss depends on every rank's term in the same way: gradients pass through."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        total = x.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0], None


class RowwiseLinear(nn.Module):
    """The input channels of one rank, and a sum over the ranks; made by :func:`rowwise`.

    Args:
        local: this rank's slice, without bias. bias: ``[N]`` or None, added once, after the sum.
        group: the process group; None is the default one.
    """

    bias: Tensor | None

    def __init__(self, local: Linear, bias: Tensor | None, group: Any = None) -> None:
        super().__init__()
        self.local = local
        self.register_buffer("bias", bias)
        self._group = group

    def forward(self, input: Tensor) -> Tensor:
        """This rank's ``[..., K / world]`` -> the whole ``[..., N]``, the same on every rank.
        Partial sums are in the dtype of the activations."""
        total: Tensor = _SumOverRanks.apply(  # type: ignore[no-untyped-call]
            self.local(input), self._group
        )
        return total if self.bias is None else total + self.bias


def rowwise(linear: Linear, rank: int, world: int, group: Any = None) -> RowwiseLinear:
    """The input channels of one rank: takes the part of the input that a ``colwise`` layer before
    it made, and sums over the ranks.

    Args:
        linear: the whole layer. rank, world: as in :func:`colwise`. group: the process group.

    Raises:
        ValueError: in_features is not a multiple of ``world`` groups, or the layer reorders its
            input (act-order), whose parts other ranks have.
    """
    whole = linear.to_quantized_weight()
    if whole.permutation is not None:
        raise ValueError("rowwise: the layer has a permutation (act-order). Hint: colwise")
    one_group = linear.group_size == -1
    size = 1 if one_group else linear.group_size
    part = _slice(linear.in_features, rank, world, size, "in_features")
    groups = slice(None) if one_group else slice(part.start // size, part.stop // size)
    local = Linear.from_quantized(
        whole.q[:, part],
        whole.scales[groups],
        None if whole.zeros is None else whole.zeros[groups],
        None,
        None if whole.pre_scale is None else whole.pre_scale[part],
        bits=linear.bits,
        group_size=linear.group_size,
        zero_mode="sub" if whole.zeros is None else linear.zero_mode,
    )
    return RowwiseLinear(local, None if linear.bias is None else linear.bias.detach(), group)


def _gemm_shardings(
    a: Any,
    b_packed: Any,
    scales: Any,
    zeros: Any = None,
    bias: Any = None,
    pre_scale: Any = None,
    **scalars: Any,
) -> list[tuple[list[Any], list[Any]]]:
    """Rows of ``a`` may be cut anywhere, the weight at whole groups of 64 output channels (a plain
    slice of the packed layout). K may not: a slice of it is another packed weight (``rowwise``)."""

    def given(placement: Any, tensor: Any) -> Any:
        return None if tensor is None else placement

    def rule(out: Any, row: Any, packed: Any, group: Any, channel: Any) -> Any:
        inputs = [row, packed, group, given(group, zeros), given(channel, bias)]
        return [out], [*inputs, given(Replicate(), pre_scale)]

    last, whole = a.ndim - 1, Replicate()
    rules = [rule(whole, whole, whole, whole, whole)]
    rules += [rule(Shard(i), Shard(i), whole, whole, whole) for i in range(last)]
    if scales.shape[1] % (PAD_N * scales.mesh.size()) == 0:
        rules.append(rule(Shard(last), whole, Shard(0), Shard(1), Shard(0)))
    return rules


if _library.available:
    register_sharding(torch.ops.mixed_gemm.fpA_intB_gemm.default)(_gemm_shardings)
