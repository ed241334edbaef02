"""The kinds of quantized weights: one row each. A new scheme is a file beside ``integer`` and a row
here; a name for users is a row of ``SCHEMES`` in ``scheme``.
"""

from __future__ import annotations

from ..ops.errors import ArgumentValueError
from . import act_order as _has_columns_of_integers  # noqa: F401
from .books import BookWeight
from .conv import ConvWeight
from .conv_int8 import Int8ConvWeight
from .floats import FloatWeight
from .fp8 import Fp8Weight
from .fp8_weight_only import Fp8WeightOnly
from .integer import IntegerWeight
from .scheme import Scheme
from .tensor import QuantizedTensor
from .w8a8 import W8A8Weight
from .w8a8_block import W8A8BlockWeight

# The first that stores a scheme does.
KINDS: list[type[QuantizedTensor]] = [
    IntegerWeight,
    FloatWeight,
    BookWeight,
    W8A8Weight,
    W8A8BlockWeight,
    Fp8WeightOnly,
    Fp8Weight,
    ConvWeight,
    Int8ConvWeight,
]


def storing(scheme: Scheme, dims: int) -> type[QuantizedTensor] | None:
    """The kind of weight for a scheme and a number of dimensions: 2 of a linear, 4 of a
    convolution; None when there is none."""
    return next((kind for kind in KINDS if kind.stores(scheme, dims)), None)


def kind_of(where: str, scheme: Scheme, shape: tuple[int, ...]) -> type[QuantizedTensor]:
    """The kind of weight that stores ``shape`` by this scheme.

    Raises:
        ValueError: there is none, or the shape does not fit the scheme.
    """
    kind = storing(scheme, len(shape))
    if kind is None:
        raise ArgumentValueError(
            f"{where}: no weight of {len(shape)} dimensions is stored as {scheme}"
        )
    if reason := kind.why_not(scheme, shape):
        raise ArgumentValueError(f"{where}: {reason}")
    return kind
