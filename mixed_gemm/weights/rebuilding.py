"""Quantized weights made again from others: by libraries that rebuild a parameter with its own
class, as ``type(parameter)(data, requires_grad=...)``, by ``copy.deepcopy`` and by pickle.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from ..ops.errors import ArgumentTypeError, dtype_name, shape_text

if TYPE_CHECKING:
    from .tensor import QuantizedTensor

Weight = TypeVar("Weight", bound="QuantizedTensor")


def as_parameter(
    kind: type[Weight],
    quantized: type[QuantizedTensor],
    data: Tensor,
    /,
    requires_grad: bool = False,
    **described: Any,
) -> Weight:
    """A parameter that shares the parts of ``data``, as ``nn.Parameter(data)`` would be for a
    parameter of torch.

    Args:
        kind: the class that was called, which an error names. quantized: the base of all kinds.
        data: of any shape, quantized.
        requires_grad: False; packed weights do not train.
        described: attributes of the parameter that is rebuilt, some libraries pass its
            ``__dict__``. ``data`` says the same of itself, so they are left alone.

    Raises:
        TypeError: ``data`` is not quantized, so that nothing says how to round it.
        RuntimeError: ``requires_grad`` is True.
    """
    if not isinstance(data, quantized):
        raise ArgumentTypeError(
            f"{kind.__name__}: a parameter of this class is rebuilt from quantized data, got a "
            f"{type(data).__name__} {dtype_name(data.dtype)} {shape_text(data.shape)}, which does "
            f"not say how to round it. Hint: weight.data = tensor rounds it as the weight is "
            f"stored, {kind.__name__}.from_float(tensor, scheme) makes a weight of it"
        )
    made: Any = data.detach().requires_grad_(requires_grad)
    made._is_param = True  # isinstance(made, nn.Parameter) asks for it
    parameter: Weight = made
    return parameter


def copied(weight: Weight, memo: dict[int, Any]) -> Weight:
    """``copy.deepcopy`` of a weight, without a gradient, as of any parameter: parts that several
    weights share are shared by the copies.

    Args:
        weight: of any shape. memo: of ``copy.deepcopy``.
    """
    if id(weight) in memo:
        known: Weight = memo[id(weight)]
        return known
    if getattr(weight.__dict__.get("_plain"), "is_stacked", False):
        for part in weight.tensors().values():  # not all experts, for the copy of one of them
            memo[id(part)] = part.clone(memory_format=torch.contiguous_format)
    state = copy.deepcopy(weight.__getstate__(), memo)
    made = unpickled(type(weight), tuple(weight.shape), weight.dtype, state)
    memo[id(weight)] = made
    return made


def reduced(weight: QuantizedTensor) -> tuple[Any, ...]:
    """Return what pickle, ``torch.save`` and ``copy.copy`` make a weight again from.

    Args:
        weight: of any shape, on any device.
    """
    return unpickled, (type(weight), tuple(weight.shape), weight.dtype, weight.__getstate__())


def unpickled(
    kind: type[Weight], shape: tuple[int, ...], dtype: torch.dtype, state: dict[str, Any]
) -> Weight:
    """The weight that :func:`reduced` took apart.

    Args:
        kind: its class. shape, dtype: of the dense weight.
        state: its attributes, the parts among them, on the device that it is to have.
    """
    first: Tensor = state[kind.parts[0].name]
    made: Weight = kind._wrap(shape, dtype, first.device)
    made.__setstate__(state)
    return made
