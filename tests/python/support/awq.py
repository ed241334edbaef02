"""An AutoAWQ weight, its words and what they stand for."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from problems.awq import awq_words
from torch import Tensor

from mixed_gemm import reference


@dataclass
class Awq:
    """An AutoAWQ layer; ``q`` and ``zeros`` are what ``reference`` takes: signed, ``[N, K]``."""

    qweight: Tensor
    scales: Tensor
    qzeros: Tensor
    q: Tensor
    zeros: Tensor
    group_size: int

    def ratio(self, out: Tensor, a: Tensor) -> float:
        arguments = (a, self.q, self.scales, self.zeros)
        expected = reference.fpA_intB_gemm(*arguments, group_size=self.group_size)
        bound = reference.error_bound(*arguments, group_size=self.group_size)
        return reference.error_ratio(out, expected, bound)

    def dense(self) -> Tensor:
        """float64 ``[K, N]``."""
        return reference.dequantize(self.q, self.scales, self.zeros, group_size=self.group_size).t()


def awq(n: int, k: int, group_size: int, dtype: torch.dtype = torch.float16) -> Awq:
    g = torch.Generator().manual_seed(n + k)
    groups = 1 if group_size == -1 else k // group_size
    codes = torch.randint(0, 16, (k, n), generator=g)
    zeros = torch.randint(0, 16, (groups, n), generator=g)
    scales = ((0.5 + torch.rand(groups, n, generator=g)) / 16).to(dtype)
    return Awq(
        awq_words(codes),
        scales,
        awq_words(zeros),
        (codes - 8).t().to(torch.int8),
        (zeros - 8).to(dtype),
        group_size,
    )
