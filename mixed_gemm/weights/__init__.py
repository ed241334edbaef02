"""Quantized weights: how they are stored, rounded, checked and exchanged."""

from . import dispatch as _answers_operators  # noqa: F401
from . import flat_parameter as _refuses_fsdp1  # noqa: F401
from .conv import ConvWeight
from .conv_int8 import Int8ConvWeight
from .exchange import QuantizedWeight
from .floats import FloatWeight
from .fp8 import Fp8Weight
from .fp8_weight_only import Fp8WeightOnly
from .integer import IntegerWeight
from .kinds import KINDS
from .rounding import quantize_weight
from .rounding_conv import quantize_conv_weight
from .rows import RowsWeight
from .scheme import SCHEMES, Scheme, Side
from .tensor import QuantizedTensor
from .w8a8 import W8A8Weight
from .w8a8_block import W8A8BlockWeight

__all__ = [
    "KINDS",
    "SCHEMES",
    "ConvWeight",
    "FloatWeight",
    "Fp8Weight",
    "Fp8WeightOnly",
    "Int8ConvWeight",
    "IntegerWeight",
    "QuantizedTensor",
    "QuantizedWeight",
    "RowsWeight",
    "Scheme",
    "Side",
    "W8A8BlockWeight",
    "W8A8Weight",
    "quantize_conv_weight",
    "quantize_weight",
]
