"""Who depends on a quantized weight: its views and slices, which hear when it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

if TYPE_CHECKING:
    from .tensor import QuantizedTensor

# First part of a weight -> the views and slices of it. All tensors that share the parts of a weight
# share that part.
_DEPENDENTS: Any = WeakIdKeyDictionary()


def depends(view: Any, weight: QuantizedTensor) -> None:
    """Have a view or a slice of a weight, of any shape, hear when that is written.

    Args:
        view: with a method ``weight_written``.
    """
    first = weight._stored()[0]
    if type(first) is Tensor:
        _DEPENDENTS.setdefault(first, WeakIdKeyDictionary())[view] = True


def has_views(weight: QuantizedTensor) -> bool:
    """Whether there are views or slices of a weight, of any shape."""
    return bool(_DEPENDENTS.get(weight._stored()[0]))


def tell_views(weight: QuantizedTensor) -> None:
    """Bring the views and slices of a weight in line with it.

    Args:
        weight: that was written, of any shape.
    """
    for view in list(_DEPENDENTS.get(weight._stored()[0], ())):
        view.weight_written()


def fill(weight: QuantizedTensor, new: QuantizedTensor) -> None:
    """Copy the parts of another weight into those that are there, and tell who depends on them.

    Args:
        weight: of any shape. new: stored alike.
    """
    for name, tensor in new.tensors().items():
        getattr(weight, name).copy_(tensor)
    weight.written()
    tell_views(weight)
