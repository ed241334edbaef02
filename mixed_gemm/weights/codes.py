"""Codes of a weight type, and the numbers that they stand for."""

from __future__ import annotations

import torch
from torch import Tensor

from ..ops.problem import WEIGHTS
from .nearest import numbers_of


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
    if WEIGHTS[weight].is_integer:
        return x.round().to(torch.int8)
    return numbers_of(weight, x.device).nearest_codes(x)
