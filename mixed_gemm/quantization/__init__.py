"""Quantizing whole models and checkpoints, and what it costs in quality."""

from .evaluate import Perplexity, perplexity
from .methods.smoothing import smoothing_factors
from .model import quantize_
from .report import LayerReport, Report
from .stream import DenseCheckpoint

__all__ = [
    "DenseCheckpoint",
    "LayerReport",
    "Perplexity",
    "Report",
    "perplexity",
    "quantize_",
    "smoothing_factors",
]
