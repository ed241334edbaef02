"""The method that a call of ``quantize_`` means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from torch import nn

from .._progress import Progress
from ..ops.errors import ArgumentValueError
from ..weights.tensor import QuantizedTensor
from .methods.base import BlockMethod, CompleteMethod, Defaults, goes_by_blocks
from .methods.fits import refuse_unfit
from .methods.gptq import GPTQ
from .methods.rounding import RoundToNearest
from .methods.sequential import Sequential
from .methods.smoothquant import SmoothQuant
from .select import Target


def method_for(
    method: BlockMethod | CompleteMethod | None,
    targets: Mapping[str, Target],
    rounds_activations: bool,
    smooth: float | Literal["search"] | None,
    progress: Progress,
) -> CompleteMethod:
    """Return the method that rounds the layers.

    Args:
        method: an object, or None: to the nearest, with SmoothQuant where ``smooth`` is given.
        targets: name -> layer. rounds_activations: whether the scheme does.
        smooth, progress: see ``quantize_``.

    Raises:
        ValueError: the method, the schemes and ``smooth`` do not fit each other.
    """
    if isinstance(method, SmoothQuant):
        _refuse_smooth(smooth)
        if targets and not rounds_activations:
            name, target = next(iter(targets.items()))
            raise ArgumentValueError(
                f"quantize_: method={method} is for schemes that round activations, got "
                f"{name} as {target.scheme}. Hint: scheme='w8a8'"
            )
        method.progress = progress
        return ByScheme(method, RoundToNearest())
    if method is not None:
        return _by_method(method, targets, smooth, progress)
    if rounds_activations:
        return ByScheme(SmoothQuant(smooth), RoundToNearest())
    if smooth is not None:
        raise ArgumentValueError(
            "quantize_: smooth must be None for schemes whose activations stay in 16 bits, got "
            f"{smooth}. Hint: scheme='w8a8'"
        )
    return RoundToNearest()


def _refuse_smooth(smooth: float | Literal["search"] | None) -> None:
    if smooth is not None:
        raise ArgumentValueError(f"quantize_: smooth must be None with a method, got {smooth}")


def _by_method(
    method: BlockMethod | CompleteMethod,
    targets: Mapping[str, Target],
    smooth: float | Literal["search"] | None,
    progress: Progress,
) -> CompleteMethod:
    for name, target in targets.items():
        if target.scheme.is_packed:
            refuse_unfit("quantize_", method, name, target.scheme)
        elif not isinstance(method, GPTQ):
            raise ArgumentValueError(
                "quantize_: method must be None, 'gptq', 'smoothquant' or 'smoothquant+gptq' for "
                "schemes that round activations, and None or 'gptq' for float8, got "
                f"{method} and {name} as {target.scheme}"
            )
    _refuse_smooth(smooth)
    if not goes_by_blocks(method):
        return method
    if any(target.layer.weight.is_meta for target in targets.values()):
        raise ArgumentValueError(
            f"quantize_: a model on the meta device has no weights to calibrate by {method}. Hint: "
            "mixed_gemm.quantization.CalibratedCheckpoint, of a folder"
        )
    if any(target.scheme.input_activations is not None for target in targets.values()):
        return SmoothQuant(None, method, progress)
    return Sequential(method, progress)


class ByScheme(Defaults):
    """SmoothQuant for layers whose activations are rounded, rounding to nearest for the others."""

    reads_calibration = True

    def __init__(self, rounded: SmoothQuant, others: RoundToNearest) -> None:
        self._rounded, self._others = rounded, others

    def __repr__(self) -> str:
        return f"{self._rounded}"

    def _of(self, target: Target) -> CompleteMethod:
        return self._others if target.scheme.input_activations is None else self._rounded

    def prepare(self, model: nn.Module, targets: Any, calibration: Any) -> None:
        """Prepare SmoothQuant for its layers. Arguments as in :class:`Method`."""
        mine = {name: x for name, x in targets.items() if self._of(x) is self._rounded}
        self._rounded.prepare(model, mine, calibration)

    def weight(self, name: str, target: Target) -> QuantizedTensor:
        """Round a layer by its method. Arguments and errors as in :class:`Method`."""
        return self._of(target).weight(name, target)

    @property
    def calibrated(self) -> dict[str, str]:
        """The calibrated blocks of SmoothQuant."""
        return self._rounded.calibrated

    def output_error(self, name: str) -> float | None:
        """Return the relative error of a layer's output; None where nobody knows it."""
        return self._rounded.output_error(name)

    def note(self, name: str) -> str:
        """Tell where SmoothQuant's factors of a layer went."""
        return self._rounded.note(name)
