"""The numbers that the codes of a scheme stand for, and rounding to them."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from ...weights.codes import ordered
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
    values, ends = _table(numbers, x.device)
    return x.copy_(values[torch.bucketize(x.contiguous(), ends)])


@functools.cache
def _table(numbers: str, device: torch.device) -> tuple[Tensor, Tensor]:
    """The numbers of a weight type in rising order, and where each but the last ends. Kept, since
    a recording of a GPU reads the same memory in each of its runs."""
    with torch.inference_mode(False):
        values, _, ends = ordered(numbers, device)
        return values, ends
