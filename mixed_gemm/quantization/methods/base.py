"""The protocols of methods: what ``quantize_`` asks of one that rounds layers, and of one that
quantizes a model block by block.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from torch import nn

from ...weights.tensor import QuantizedTensor
from ..block import CalibrationBlock
from ..select import Target

if TYPE_CHECKING:
    from typing_extensions import TypeIs


class Method(Protocol):
    """How dense weights become quantized ones.

    A method may also state ``reads_calibration`` (True where :meth:`prepare` needs the data),
    ``calibrated`` and ``output_error``, which :class:`CompleteMethod` explains.
    """

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
        """Return the quantized weight of one layer.

        Args:
            name: of the layer. target: the layer and its scheme, one of those of :meth:`prepare`.

        Raises:
            ValueError: the weight holds NaN or Inf.
        """

    def note(self, name: str) -> str:
        """Tell what was done for the layer ``name`` beyond rounding it; empty for nothing."""


class CompleteMethod(Method, Protocol):
    """A method with everything that ``quantize_`` reads from one: see :func:`completed`."""

    @property
    def reads_calibration(self) -> bool:
        """Whether the method needs calibration data."""

    @property
    def calibrated(self) -> Mapping[str, str]:
        """Block -> how the method found the block's inputs; empty where it goes by no blocks."""

    def output_error(self, name: str) -> float | None:
        """Return the relative error that rounding the layer ``name`` causes in its output on the
        calibration data; None where the method does not know it."""


class BlockMethod(Protocol):
    """How the layers of one block are quantized. Such a method always needs calibration data."""

    @property
    def needs_reference(self) -> bool:
        """Whether it looks at what the dense model computes."""

    @property
    def needs_outputs(self) -> bool:
        """Whether it looks at what the block makes of the dense model's hidden states."""

    def quantize(self, stage: CalibrationBlock) -> None:
        """Give every layer of the block its result (``BlockLayer.finish``).

        Args:
            stage: the block, with stand-ins in the places of its layers.

        Raises:
            ValueError: calibration does not reach a layer, or brings NaN or Inf.
        """


@runtime_checkable
class _Quantizes(Protocol):
    def quantize(self, stage: CalibrationBlock) -> None: ...


@runtime_checkable
class _Rounds(Protocol):
    def weight(self, name: str, target: Target) -> QuantizedTensor: ...


def goes_by_blocks(method: object) -> TypeIs[BlockMethod]:
    """Whether an object is a :class:`BlockMethod`."""
    return isinstance(method, _Quantizes)


def is_method(method: object) -> bool:
    """Whether an object is a :class:`Method` or a :class:`BlockMethod`."""
    return isinstance(method, _Quantizes | _Rounds)


def reads_calibration(method: BlockMethod | CompleteMethod) -> bool:
    """Whether a method needs calibration data."""
    return goes_by_blocks(method) or method.reads_calibration


class Defaults:
    """The members of a :class:`CompleteMethod` for a method that states nothing of its own."""

    reads_calibration = False

    @property
    def calibrated(self) -> Mapping[str, str]:
        """Empty: the method goes by no blocks."""
        return {}

    def output_error(self, name: str) -> float | None:
        """Return None, whatever the ``name``: the method does not know the error."""
        return None


class _Completed:
    """A method that was written elsewhere and may state no more than :class:`Method` does."""

    def __init__(self, method: Any) -> None:
        self._method = method

    def __repr__(self) -> str:
        return repr(self._method)

    def prepare(self, model: nn.Module, targets: Any, calibration: Any) -> None:
        self._method.prepare(model, targets, calibration)

    def weight(self, name: str, target: Target) -> QuantizedTensor:
        found: QuantizedTensor = self._method.weight(name, target)
        return found

    def note(self, name: str) -> str:
        return str(self._method.note(name))

    @property
    def reads_calibration(self) -> bool:
        return bool(getattr(self._method, "reads_calibration", False))

    @property
    def calibrated(self) -> Mapping[str, str]:
        found: Mapping[str, str] = getattr(self._method, "calibrated", {})
        return found

    def output_error(self, name: str) -> float | None:
        own = getattr(self._method, "output_error", None)
        return None if own is None else own(name)


def completed(method: Any) -> CompleteMethod:
    """Return a method that states all of :class:`CompleteMethod`: the object itself where it is one
    of ours, else a view of it.

    Args:
        method: with the three functions of :class:`Method` at least.
    """
    found: Any = method if isinstance(method, Defaults) else _Completed(method)
    complete: CompleteMethod = found
    return complete
