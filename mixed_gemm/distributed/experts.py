"""How ranks share the experts of a mixture: each has a shard of every expert, or some experts as a
whole; then either all ranks have the same tokens and add up their terms, or each has tokens of its
own and sends them to the ranks of the experts that these chose.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from ..nn.expert import Expert
from ..nn.experts import Experts
from ..ops.errors import ArgumentValueError
from . import exchange
from .all_reduce import AllReduce, shared
from .bounds import bounds
from .local_linear import LocalDense, LocalLinear
from .read import COLUMNS, ROWS, ShardOf
from .sums import on_every_rank, summed

# How ranks share experts.
CUT, WHOLE, EXCHANGED = "cut", "whole", "exchanged"


class SpreadExperts:
    """The work of one rank on the experts of a layer, and the way from there to the result of all.

    Args:
        experts: of the layer. mesh: one-dimensional.
        way: "cut" where each rank has some rows of gate and up, and these columns of down, of every
            expert; "whole" where it has some experts as a whole; "exchanged" where it has, and
            tokens of its own.
        all_reduce: of ``AllReduce``, for the sum over ranks.

    Attributes:
        own: the numbers of the experts that this rank computes.

    Raises:
        ValueError: there are fewer experts than ranks, or the form of these experts does not allow
            for it.
    """

    def __init__(self, experts: Experts, mesh: Any, way: str, all_reduce: str = "auto") -> None:
        _refuse(experts, mesh, way)
        self._experts, self.mesh, self.way = experts, mesh, way
        self.count = experts.form.count
        self.reduce: AllReduce = shared(mesh, all_reduce)
        self.spans = (
            [(0, self.count)] * mesh.size()
            if way == CUT
            else bounds(self.count, mesh.size(), units=(1,))
        )
        self.own = range(*self.spans[mesh.get_local_rank()])

    def __deepcopy__(self, memo: dict[int, Any]) -> SpreadExperts:
        """Share the mesh and the sum over ranks, which cannot be copied."""
        made = SpreadExperts.__new__(SpreadExperts)
        made.__dict__.update(self.__dict__)
        made._experts = copy.deepcopy(self._experts, memo)
        return made

    def shard_of(self, expert: Expert, number: int, name: str, shape: tuple[int, int]) -> ShardOf:
        """The rows or columns of a linear that this rank has.

        Args:
            expert: whose linear it is. number: of the expert. name: of the linear. shape: [N, K].

        Raises:
            ValueError: its rows, or columns, cannot be shared by so many ranks.
        """
        if self.way != CUT:
            return ShardOf(ROWS, 0, shape[ROWS] if number in self.own else 0)
        dim = COLUMNS if name == expert.names.down else ROWS
        edges = bounds(shape[dim], self.mesh.size())
        return ShardOf(dim, *edges[self.mesh.get_local_rank()])

    def refuse_others(self) -> None:
        """Look whether the linears of this rank are still shards.

        Raises:
            ValueError: there is another module in the place of one, an adapter, say, which each
                rank would have another one of.
        """
        for number, expert in self._experts.own.items():
            for name, linear in expert._modules.items():
                if not isinstance(linear, LocalLinear | LocalDense):
                    kind = f"{type(linear).__module__}.{type(linear).__name__}"
                    raise ArgumentValueError(
                        f"mixed_gemm.parallel: ranks share these experts, and {number}.{name} is a "
                        f"{kind} now, which would be another one on each. Hint: train adapters "
                        "where each process has all experts, merge them, then share"
                    )

    def of_chosen(self, x: Tensor, index: Tensor, weights: Tensor) -> Tensor:
        """The result of all experts.

        Args:
            x: ``[T, hidden size]``. index: int ``[T, k]``, numbers of experts; others add nothing.
            weights: float ``[T, k]``.

        Returns:
            ``[T, hidden size]``, on every rank that of its tokens.
        """
        x, weights = _local(x), _local(weights)
        if self.way == EXCHANGED:
            return exchange.exchanged(self, x, index, weights)
        x, weights = on_every_rank(x, self.reduce), on_every_rank(weights, self.reduce)
        out = self.computed(x, self.places(index), weights)
        return summed(out, self.reduce)

    def of_sorted(self, x: Tensor) -> Tensor:
        """The results of all experts for rows that come sorted, as many for each.

        Args:
            x: ``[E * T, hidden size]``.
        """
        x = on_every_rank(_local(x), self.reduce)
        rows = len(x) // self.count
        start, stop = self.own.start * rows, self.own.stop * rows
        out = self._experts.of_sorted(x[start:stop])
        if len(out) != len(x):
            ends = out.new_zeros(start, x.shape[1]), out.new_zeros(len(x) - stop, x.shape[1])
            out = torch.cat((ends[0], out, ends[1]))
        return summed(out, self.reduce)

    def places(self, index: Tensor) -> Tensor:
        """Numbers of experts as their places among those of this rank, -1 for others.

        Args:
            index: int ``[T, k]``.
        """
        if self.way == CUT:
            return index
        mine = (index >= self.own.start) & (index < self.own.stop)
        return torch.where(mine, index - self.own.start, -1)

    def owners(self, index: Tensor) -> Tensor:
        """The rank that has each expert, -1 for what is none.

        Args:
            index: int ``[T, k]``, numbers of experts.
        """
        stops = torch.tensor([x for _, x in self.spans], device=index.device, dtype=index.dtype)
        owners = torch.bucketize(index, stops, right=True)
        return torch.where((index >= 0) & (index < self.count), owners, -1)

    def computed(self, x: Tensor, places: Tensor, weights: Tensor) -> Tensor:
        """The term of this rank, whose gradient reaches ``x`` and ``weights`` also where no token
        chose an expert of it: the other ranks wait for that.

        Args:
            x: ``[T, hidden size]``. places: int ``[T, k]``. weights: float ``[T, k]``.
        """
        out = self._experts.of_chosen(x, places, weights)
        if torch.is_grad_enabled() and (x.requires_grad or weights.requires_grad):
            out = out + (x[:, :0].sum() + weights[:, :0].sum()).to(out.dtype)
        return out


def _local(x: Any) -> Any:
    return x.to_local() if hasattr(x, "to_local") else x


def _refuse(experts: Experts, mesh: Any, way: str) -> None:
    where, ranks = "mixed_gemm.parallel", mesh.size()
    if mesh.ndim != 1:
        raise ArgumentValueError(
            f"{where}: experts are shared over a mesh of one dimension, got {mesh.ndim}"
        )
    if way != CUT and experts.form.count < ranks:
        raise ArgumentValueError(
            f"{where}: {experts.form.count} experts cannot be shared by {ranks} ranks. Hint: "
            "ExpertTensorParallel, which cuts each of them"
        )
    if way == CUT and experts._modules.get("post_expert_norm") is not None:
        raise ArgumentValueError(
            f"{where}: the results of these experts are normalized before they are added up, so "
            "that terms of several ranks are of no use. Hint: ExpertParallel, which has whole ones"
        )
    if way == EXCHANGED and experts.form.is_sorted:
        raise ArgumentValueError(
            f"{where}: these experts take sorted rows of tokens that every rank has. Hint: "
            "ExpertParallel with input_layouts=Replicate()"
        )
