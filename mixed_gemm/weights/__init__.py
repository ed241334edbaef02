"""Quantized weights: how they are stored, rounded, checked and exchanged."""

from .exchange import QuantizedWeight
from .rounding import quantize_weight
from .rounding_conv import quantize_conv_weight
from .scheme import QuantScheme

__all__ = ["QuantScheme", "QuantizedWeight", "quantize_conv_weight", "quantize_weight"]
