"""Calls of ops on a lattice of integers, which the file of each op makes (``sample``): products and
sums are exact in float32, and activations that are rounded to int8 are integers already. So a
result, and a derivative, must equal that of the same function in float64 bit for bit, unless the
activation is smooth.

Arguments come in the order in which tests/data/refusals.txt breaks them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

TORCH = torch.ops.mixed_gemm
SMOOTH = ("gelu", "gelu_tanh", "silu")
SMOOTH_GATES = (*SMOOTH, "swiglu_oai")
FLOAT = torch.float32


@dataclass(frozen=True)
class Sample:
    """One call. trains: the arguments that ``exact`` takes, in this order."""

    op: str
    arguments: dict[str, Any]
    trains: tuple[str, ...] = ()
    exact: Callable[..., Tensor] | None = None

    def primals(self) -> tuple[Tensor, ...]:
        return tuple(self.arguments[name] for name in self.trains)

    def to(self, device: str) -> Sample:
        """The same call on another device; ``exact`` stays where it is."""
        moved = {
            name: x.to(device) if isinstance(x, Tensor) else x for name, x in self.arguments.items()
        }
        return replace(self, arguments=moved)

    def run(self, *trained: Tensor) -> Any:
        """The op with other values for the arguments that train."""
        return self.call(**dict(zip(self.trains, trained, strict=True)))

    def call(self, **changes: Any) -> Any:
        return getattr(TORCH, self.op).default(**{**self.arguments, **changes})

    def frozen(self) -> list[str]:
        """Arguments that could ask for a derivative and have none."""
        return [
            name
            for name, x in self.arguments.items()
            if isinstance(x, Tensor) and x.is_floating_point() and name not in self.trains
        ]

    def without(self, *names: str, **more: Any) -> Sample:
        """The call without some arguments, and with others; nothing tells what it computes."""
        given = {name: x for name, x in self.arguments.items() if name not in names}
        trains = tuple(name for name in self.trains if name not in names)
        return Sample(self.op, {**given, **more}, trains)

    @property
    def is_smooth(self) -> bool:
        return self.arguments.get("activation") in SMOOTH_GATES


def integers(*shape: int, low: int = -2, high: int = 2, dtype: torch.dtype = FLOAT) -> Tensor:
    return torch.randint(low, high + 1, shape).to(dtype)


def int8(*shape: int, most: int = 3) -> Tensor:
    return integers(*shape, low=-most, high=most, dtype=torch.int8)


def int32(*shape: int) -> Tensor:
    """Words of packed codes, or sums."""
    return torch.randint(-(2**31), 2**31, shape, dtype=torch.int32)


def powers(*shape: int, dtype: torch.dtype = FLOAT) -> Tensor:
    """Scales: 1/16 or -1/8."""
    return torch.tensor([0.0625, -0.125]).to(dtype)[torch.randint(0, 2, shape)]


def full_range(*shape: int, block: int, low: int = -128) -> Tensor:
    """Integers that int8 holds as they are: each block of a row has a ``low`` and a 127."""
    x = integers(*shape, low=-3, high=3)
    x[..., ::block], x[..., 1::block] = low, 127
    return x
