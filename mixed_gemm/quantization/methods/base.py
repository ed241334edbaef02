"""What ``quantize_`` asks of a method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from torch import nn

from ...weights.tensor import QuantizedTensor
from ..select import Target


class Method(Protocol):
    """How dense weights become quantized ones."""

    def prepare(
        self, model: nn.Module, targets: Mapping[str, Target], calibration: Iterable[Any] | None
    ) -> None:
        """Look at the model and the calibration data, before any layer is replaced. May change
        weights of layers that stay, so that the model computes the same.

        Args:
            model: that holds the layers.
            targets: name -> layer, of those to quantize. calibration: batches, or None.

        Raises:
            ValueError: what it needs is missing. Nothing was changed then.
        """

    def weight(self, name: str, target: Target) -> QuantizedTensor:
        """The quantized weight of one layer.

        Args:
            name: of the layer. target: the layer and its scheme, one of those of :meth:`prepare`.

        Raises:
            ValueError: the weight holds NaN or Inf.
        """

    def note(self, name: str) -> str:
        """What was done for the layer ``name`` beyond rounding it, in words; empty for nothing."""
