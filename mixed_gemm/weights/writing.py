"""A dense value rounded as a weight is stored, so that rows which nobody changed stay what they
are, to the bit: calibration may have chosen them otherwise than rounding to nearest would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .tensor import QuantizedTensor

Weight = TypeVar("Weight", bound="QuantizedTensor")


def rounded_like(weight: Weight, dense: Tensor) -> Weight:
    """``dense`` as ``weight`` is stored.

    Args:
        weight: ``[N, ...]``.
        dense: float16, bfloat16 or float32 ``[M, ...]``: row i takes the place of row i.

    Returns:
        A weight ``[M, ...]``. Its rows that equal those of ``weight``, in the dtype of ``dense``,
        have the codes and the scales of those, where nothing but rows shares a scale.
    """
    if is_traced(weight) or dense.is_meta or weight.is_meta:  # nobody can look at the values
        return weight.requantized(dense)
    count = min(weight.shape[0], dense.shape[0])
    before, after = weight.dequantize(dense.dtype)[:count].to(dense.device), dense[:count]
    same = torch.zeros(dense.shape[0], dtype=torch.bool, device=dense.device)
    same[:count] = ((before == after) | (before.isnan() & after.isnan())).flatten(1).all(1)
    if dense.shape == weight.shape and bool(same.all()):
        return weight
    new = weight.requantized(dense)
    return new.keeping(weight, same) if bool(same.any()) else new


def is_traced(weight: QuantizedTensor) -> bool:
    """Whether a compiler holds the parts of a weight, of any shape, so that nobody can look at
    them."""
    return type(weight._stored()[0]) not in (Tensor, torch.nn.Parameter)


def spliced(new: Tensor, old: Tensor, same: Tensor, dim: int) -> Tensor:
    """``new`` with what ``old`` has at the indices of a dimension that ``same`` names.

    Args:
        new, old: equal in all other dimensions; ``old`` may be longer or shorter in ``dim``, and
            has all that is named.
        same: bool ``[new.shape[dim]]``.
    """
    where = same.nonzero().squeeze(1)
    if new.dtype == torch.float8_e4m3fn:  # which index_copy does not take on every device
        return spliced(new.view(torch.uint8), old.view(torch.uint8), same, dim).view(new.dtype)
    return new.index_copy(dim, where, old.index_select(dim, where))
