"""Methods of quantization: how a dense weight becomes a quantized one. One class each."""

from .autoround import AutoRound
from .awq import AWQ
from .base import BlockMethod, Method
from .distilled import Distilled
from .gptq import GPTQ
from .hqq import HQQ
from .names import METHODS, named
from .rounding import RoundToNearest, SearchedRounding
from .sequential import Sequential
from .smoothquant import SmoothQuant

__all__ = [
    "AWQ", "GPTQ", "HQQ", "METHODS", "AutoRound", "BlockMethod", "Distilled", "Method",
    "RoundToNearest", "SearchedRounding", "Sequential", "SmoothQuant", "named",
]  # fmt: skip
