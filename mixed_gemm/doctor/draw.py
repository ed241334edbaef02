"""The common parts of the checks of ops: sizes, random tensors, the way from a result to its
reference."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .. import reference

M, N, K = 16, 256, 512
GROUP = 128
BITS = 4


class Here:
    """Random tensors on the CPU, always the same, and the way to the device."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.generator = torch.Generator().manual_seed(0)

    def __call__(self, x: Tensor) -> Tensor:
        return x.to(self.device)

    def normal(self, *shape: int, dtype: torch.dtype = torch.float16) -> Tensor:
        return torch.randn(shape, generator=self.generator).to(dtype)

    def scales(self, *shape: int, dtype: torch.dtype = torch.float16) -> Tensor:
        return (0.01 * (1 + torch.rand(shape, generator=self.generator))).to(dtype)

    def integers(self, bits: int, *shape: int, dtype: torch.dtype = torch.int8) -> Tensor:
        half = 2 ** (bits - 1)
        return torch.randint(-half, half, shape, generator=self.generator, dtype=dtype)


def bounded(out: Tensor, oracle: tuple[Tensor, Tensor] | reference.Oracle) -> float:
    if isinstance(oracle, reference.Oracle):
        oracle = oracle.expected, torch.minimum(oracle.statistical, oracle.hard)
    return reference.error_ratio(out.cpu(), *oracle)


def equal(out: Tensor, expected: Tensor) -> float:
    out = out.cpu()
    same = out.dtype == expected.dtype and out.shape == expected.shape
    return 0.0 if same and bool((out.float() == expected.float()).all()) else math.inf
