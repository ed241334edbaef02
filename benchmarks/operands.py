"""Tensors that benchmarks multiply: for one (N, K) enough copies of each form of the weight that no
cache holds them, made when first asked for and shared by all M, schemes and configurations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch

from mixed_gemm.selection.operands import copies_for
from mixed_gemm.selection.timing import Call

T = TypeVar("T")


def torch_dtype(name: str) -> torch.dtype:
    found: torch.dtype = getattr(torch, name)
    return found


class Operands:
    """Random operands of a product with an [N, K] weight."""

    def __init__(self, n: int, k: int, device: torch.device) -> None:
        self.n, self.k, self.device = n, k, device
        self._made: dict[Any, Any] = {}

    def once(self, key: object, make: Callable[[], T]) -> T:
        if key not in self._made:
            self._made[key] = make()
        made: T = self._made[key]
        return made

    def normal(self, *shape: int, dtype: str = "float16") -> torch.Tensor:
        return torch.randn(shape, device=self.device, dtype=torch_dtype(dtype))

    def uniform(self, *shape: int, dtype: str = "float16") -> torch.Tensor:
        """Draw scales from [0.5, 1.5), which leave no row tiny."""
        return torch.rand(shape, device=self.device, dtype=torch_dtype(dtype)) + 0.5

    def integers(
        self, low: int, high: int, *shape: int, dtype: torch.dtype = torch.int8
    ) -> torch.Tensor:
        """Draw from low..high - 1."""
        return torch.randint(low, high, shape, device=self.device, dtype=dtype)

    def activations(self, m: int, dtype: str) -> torch.Tensor:
        return self.once(("a", m, dtype), lambda: self.normal(m, self.k, dtype=dtype))

    def copies(self, first: torch.Tensor) -> list[torch.Tensor]:
        """Roll the rows of a weight: other bytes in each copy, all valid."""
        count = copies_for(first.nbytes, self.device)
        return [torch.roll(first, i, 0) for i in range(count)]

    def dense_weights(self, dtype: str) -> list[torch.Tensor]:
        return self.once(
            ("dense", dtype), lambda: self.copies(self.normal(self.n, self.k, dtype=dtype))
        )

    def dense(self, dtype: str, m: int) -> list[Call]:
        """Multiply by torch's GEMM: cuBLAS on a GPU."""
        a, linear = self.activations(m, dtype), torch.nn.functional.linear
        return [partial(linear, a, weight) for weight in self.dense_weights(dtype)]
