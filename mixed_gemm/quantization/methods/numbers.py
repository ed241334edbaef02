"""The numbers that the codes of a scheme stand for, and rounding to them."""

from __future__ import annotations

from torch import Tensor

from ...weights.nearest import numbers_of
from ...weights.rounding_fp8 import FP8
from ...weights.scheme import FLOAT8


def nearest_(x: Tensor, low: float, high: float, numbers: str) -> Tensor:
    """Round to the nearest numbers that codes stand for, in place.

    Args:
        x: float32, any shape. low, high: the least and the largest.
        numbers: "" of integers, else a weight type, whose numbers they are.
    """
    if not numbers:
        return x.round_().clamp_(low, high)
    if numbers == FLOAT8:
        return x.copy_(x.clamp_(low, high).to(FP8))
    return x.copy_(numbers_of(numbers, x.device).nearest(x))
