"""Rounding to nearest: no data, no state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from ...ops.errors import ArgumentValueError
from ...weights.kinds import kind_of
from ...weights.tensor import QuantizedTensor
from ..select import Target


class RoundToNearest:
    """Every weight to the nearest number of its scheme."""

    def prepare(
        self, model: nn.Module, targets: Mapping[str, Target], calibration: Iterable[Any] | None
    ) -> None:
        """Nothing to prepare. Arguments as in :class:`Method`.

        Raises:
            ValueError: there is calibration data, which would be ignored.
        """
        if calibration is not None:
            raise ArgumentValueError(
                "quantize_: calibration must be None for schemes whose activations stay in 16 "
                "bits, since weights are rounded to nearest without data. Hint: scheme='w8a8'"
            )

    def weight(self, name: str, target: Target) -> QuantizedTensor:
        """The rounded weight. Arguments and errors as in :class:`Method`."""
        kind = kind_of(name, target.scheme, tuple(target.layer.weight.shape))
        return kind.from_float(target.layer.weight, target.scheme)

    def note(self, name: str) -> str:
        """Empty, whatever the ``name``: nothing is done beyond rounding."""
        return ""
