"""Random values of test problems, seeded by what the problem is."""

from __future__ import annotations

import zlib

import torch
from torch import Tensor


class Values:
    """A source on ``device``. ``drawn_on``: where the numbers are made; "cpu" gives the same ones
    on every device (what is computed of them there may differ in the last bit), a GPU makes its own
    faster."""

    def __init__(self, device: str = "cpu", seed: int = 0, drawn_on: str = "cpu") -> None:
        self.device, self.drawn_on = device, drawn_on
        self.generator = torch.Generator(drawn_on).manual_seed(seed)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, device=self.drawn_on).to(self.device)

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.generator, device=self.drawn_on).to(self.device)

    def integers(
        self, low: int, high: int, *shape: int, dtype: torch.dtype = torch.int64
    ) -> Tensor:
        """low..high - 1."""
        return torch.randint(
            low, high, shape, generator=self.generator, device=self.drawn_on, dtype=dtype
        ).to(self.device)

    def signs(self, *shape: int) -> Tensor:
        return self.integers(0, 2, *shape) * 2 - 1

    def permutation(self, count: int) -> Tensor:
        order = torch.randperm(count, generator=self.generator, device=self.drawn_on)
        return order.to(self.device)


def seed_of(case: object) -> int:
    """The same in every process, unlike hash()."""
    return zlib.crc32(repr(case).encode())
