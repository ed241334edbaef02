"""Methods of quantization: how a dense weight becomes a quantized one. One class each."""

from .base import Method
from .rounding import RoundToNearest
from .smoothquant import SmoothQuant

__all__ = ["Method", "RoundToNearest", "SmoothQuant"]
