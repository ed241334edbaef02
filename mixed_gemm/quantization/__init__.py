"""Quantizing whole models and checkpoints, and what it costs in quality."""

from .evaluate import Perplexity, perplexity
from .model import QuantizeReport, quantize_
from .smoothquant import smoothing_factors
from .stream import DenseCheckpoint

__all__ = [
    "DenseCheckpoint",
    "Perplexity",
    "QuantizeReport",
    "perplexity",
    "quantize_",
    "smoothing_factors",
]
