"""Examples of the ops whose bits are those of the reference: a call with random operands, and what
must come out. The doctor makes them on every device.

Each is a row in ``EXAMPLES`` of a file here, where the doctor finds it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor


class Draw(Protocol):
    """A source of random tensors on the CPU."""

    def normal(self, *shape: int, dtype: torch.dtype = ...) -> Tensor:
        """Draw float16 numbers, or of another dtype."""

    def scales(self, *shape: int, dtype: torch.dtype = ...) -> Tensor:
        """Draw positive numbers around 0.015."""

    def integers(self, bits: int, *shape: int, dtype: torch.dtype = ...) -> Tensor:
        """Draw signed integers of so many bits, int8 or of another dtype."""


# (the source) -> the arguments of the op by name, and its result.
Example = Callable[[Draw], tuple[dict[str, Any], Any]]
