"""Tokens on their way to the ranks of the experts that they chose, and back: by all-to-all. A row
travels once to each rank that has some of its experts, with all of its choices and their weights,
and one row comes back from there: the sum of what these experts make of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from .._after_import import after_import
from ..ops.moe import moe_combine, moe_permute

if TYPE_CHECKING:
    from .experts import SpreadExperts


def exchanged(spread: SpreadExperts, x: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """The result of all experts for the tokens of this rank: the sum of one row of each rank, in
    their order, in fp32. The host reads how many rows each rank has for each other one.

    Args:
        spread: of the layer. x: ``[T, hidden size]``; T may be another one on each rank.
        index: int ``[T, k]``, numbers of experts. weights: float ``[T, k]``.
    """
    ranks, group = spread.mesh.size(), spread.mesh.get_group()
    weights = weights if weights.dtype == x.dtype else weights.float()
    asked = once_each(spread.owners(index), ranks)
    rows, ends, positions = moe_permute(x, asked, ranks)
    counts = torch.diff(ends.long(), prepend=ends.new_zeros(1).long())
    arriving = torch.empty_like(counts)
    dist.all_to_all_single(arriving, counts, group=group)
    to, of = counts.tolist(), arriving.tolist()
    chosen = index[_tokens(positions, len(rows))[: sum(to)]]
    # Sorted as rows are, and their gradients added up in a fixed order, too.
    factors, _, _ = moe_permute(weights, asked, ranks)
    given, factors = _sent(to, of, group, rows[: sum(to)], factors[: sum(to)])
    out = spread.computed(given, spread.places(_moved(chosen, to, of, group)), factors)
    (back,) = _sent(of, to, group, out)
    return moe_combine(back, positions, torch.ones(positions.shape, device=x.device))


def once_each(owners: Tensor, ranks: int) -> Tensor:
    """The ranks that a token's row is sent to, each once.

    Args:
        owners: int ``[T, k]``, the rank of each choice, -1 for none. ranks: their number.

    Returns:
        ``[T, min(k, ranks)]``: -1 for none, then ranks in their order.
    """
    found = owners.sort(dim=1).values
    again = torch.zeros_like(found, dtype=torch.bool)
    again[:, 1:] = found[:, 1:] == found[:, :-1]
    found = torch.where(again, -1, found).sort(dim=1).values
    return found[:, -min(ranks, found.shape[1]) :].contiguous()


def _tokens(positions: Tensor, rows: int) -> Tensor:
    """The token of each row.

    Args:
        positions: int ``[T, k]``, the rows of a token, -1 for none.
    """
    tokens = torch.arange(len(positions), device=positions.device).unsqueeze(1)
    found = tokens.new_zeros(rows + 1)
    at = torch.where(positions < 0, rows, positions).flatten().long()
    return found.scatter_(0, at, tokens.expand_as(positions).flatten())[:rows]


def _moved(x: Tensor, to: list[int], of: list[int], group: Any) -> Tensor:
    """Exchange rows with all ranks: return those that are for this one, in the order of the ranks.

    Args:
        x: ``[rows, ...]``, for one rank after the other. to: how many rows each rank gets.
        of: how many come from each.
    """
    found = x.new_empty(sum(of), *x.shape[1:])
    dist.all_to_all_single(found, x.contiguous(), of, to, group=group)
    return found


class _Sent(torch.autograd.Function):
    """Tensors that travel together: their gradients travel back in the same order on all ranks,
    which wait for each other."""

    @staticmethod
    def forward(ctx: Any, to: list[int], of: list[int], group: Any, *given: Tensor) -> Any:
        ctx.way = of, to, group
        found = tuple(_moved(x, to, of, group) for x in given)
        needed = ctx.needs_input_grad[-len(given) :]
        ctx.mark_non_differentiable(
            *(x for x, is_needed in zip(found, needed, strict=True) if not is_needed)
        )
        return found

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, None, None, *_sent(*ctx.way, *grads)


def _sent(to: list[int], of: list[int], group: Any, *given: Tensor) -> tuple[Tensor, ...]:
    found: tuple[Tensor, ...] = _Sent.apply(to, of, group, *given)  # type: ignore[no-untyped-call]
    return found


def _keep_dynamo_out() -> None:
    """Have torch.compile break its graph here: sizes follow the data."""
    global exchanged
    exchanged = torch.compiler.disable(exchanged)  # type: ignore[no-untyped-call]


after_import("torch._dynamo", _keep_dynamo_out)
