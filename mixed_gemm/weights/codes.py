"""Codes of a weight type, and the numbers that they stand for."""

from __future__ import annotations

import torch
from torch import Tensor

from ..ops.problem import WEIGHTS


def values_of(q: Tensor, weight: str) -> Tensor:
    """The numbers that codes stand for, float32.

    Args:
        q: int8 as a ``QuantizedWeight`` has it: integers themselves, or codes of another type.
        weight: a name in ``ops.problem.WEIGHTS``.
    """
    known = WEIGHTS[weight]
    if known.is_integer:
        return q.float()
    values = torch.tensor(known.values, dtype=torch.float32, device=q.device)
    return values.index_select(0, q.flatten().int()).view(q.shape)


def nearest_codes(x: Tensor, weight: str) -> Tensor:
    """The codes whose numbers are nearest to ``x``, int8: the inverse of :func:`values_of`. A tie
    goes to the even code, as casts to a float type have it; of a book to the lower number, as
    bitsandbytes has it. Integers are not cut to their range;
    of other types what is beyond the largest number becomes that.

    Args:
        x: float32. weight: a name in ``ops.problem.WEIGHTS``.
    """
    known = WEIGHTS[weight]
    if known.is_integer:
        return x.round().to(torch.int8)
    _, codes, ends = ordered(weight, x.device)
    return codes[torch.bucketize(x, ends)]


def ordered(weight: str, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """The numbers of a weight type, sorted, with their codes and their bounds.

    Args:
        weight: a name in ``ops.problem.WEIGHTS`` of a type that is no integer.

    Returns:
        Its numbers in rising order, float32 ``[C]``; the code of each, int8 ``[C]``; and for each
        but the last the largest float32 that is rounded to it and not to the next, ``[C - 1]``.
    """
    known = WEIGHTS[weight]
    # A value with two codes, as 0 and -0, gets the first of them.
    first = {value: code for code, value in reversed(list(enumerate(known.values)))}
    values = torch.tensor(sorted(first), dtype=torch.float32, device=device)
    codes = torch.tensor([first[x] for x in sorted(first)], dtype=torch.int8, device=device)
    ends = (values[1:] + values[:-1]) / 2
    if not known.is_book:  # a tie goes up where the lower code is odd
        below = torch.nextafter(ends, torch.full_like(ends, -torch.inf))
        ends = torch.where(codes[:-1] % 2 == 1, below, ends)
    return values, codes, ends
