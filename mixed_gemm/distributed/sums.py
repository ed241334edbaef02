"""Sums over ranks within autograd: of results, whose gradient every rank has, and of the gradients
of what every rank has.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .all_reduce import AllReduce, sum_over_ranks


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, term: Tensor, key: str) -> Tensor:
        total: Tensor = sum_over_ranks(term, key)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


class _OnEveryRank(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, key: str) -> Tensor:
        ctx.key = key
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        total: Tensor = sum_over_ranks(grad, ctx.key)
        return total, None


def summed(term: Tensor, reduce: AllReduce) -> Tensor:
    """The sum of the terms of all ranks, whose gradient is that of each term.

    Args:
        term: this rank's, of the same shape on all of them.
    """
    found: Tensor = _Summed.apply(term, reduce.key)  # type: ignore[no-untyped-call]
    return found


def on_every_rank(x: Tensor, reduce: AllReduce) -> Tensor:
    """The same tensor, which every rank has and computes something else from: its gradient is the
    sum of theirs.

    Args:
        x: of any shape.
    """
    if not (torch.is_grad_enabled() and x.requires_grad):
        return x
    found: Tensor = _OnEveryRank.apply(x, reduce.key)  # type: ignore[no-untyped-call]
    return found
