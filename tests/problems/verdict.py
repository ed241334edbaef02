"""How far outputs are from what they must be, as numbers on the device of the outputs: a sweep
reads many of them back at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mixed_gemm.reference.bounds import Oracle


def ratio(out: Tensor, expected: Tensor, bound: Tensor) -> Tensor:
    """max |out - expected| / bound, 0-d float64; NaN where ``out`` is, 0 when empty."""
    assert out.shape == expected.shape, (out.shape, expected.shape)
    if out.numel() == 0:
        return torch.zeros((), dtype=torch.float64, device=out.device)
    return ((out.double() - expected).abs() / bound).max()


def worst(out: Tensor, oracle: Oracle) -> Tensor:
    """By the tighter of the two bounds at every element."""
    return ratio(out, oracle.expected, torch.minimum(oracle.statistical, oracle.hard))


def exact(out: Tensor, expected: Tensor) -> Tensor:
    """0 where the two are equal bit by bit (two NaN count as equal), else inf."""
    assert out.shape == expected.shape and out.dtype == expected.dtype, (out, expected)
    same = out == expected
    if out.is_floating_point():
        same = same | (out.isnan() & expected.isnan())
    return torch.where(same.all(), 0.0, math.inf).double()


def all_of(*ratios: Tensor) -> Tensor:
    return torch.stack(ratios).max()


class Remembered:
    """Keeps what was computed for the tensors of a problem; they must not change after that."""

    def once(self, key: object, make: Callable[[], Any]) -> Any:
        memo = self.__dict__.setdefault("_memo", {})
        if key not in memo:
            memo[key] = make()
        return memo[key]
