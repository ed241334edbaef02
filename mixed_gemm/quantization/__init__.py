"""Quantizing whole models and checkpoints, and what it costs in quality."""

from . import methods
from .evaluate import Perplexity, perplexity
from .folder import CalibratedCheckpoint
from .methods.smoothing import smoothing_factors
from .model import quantize_
from .options import Options
from .report import LayerReport, Report
from .stream import DenseCheckpoint
from .text import text_batches

__all__ = [
    "CalibratedCheckpoint",
    "DenseCheckpoint",
    "LayerReport",
    "Options",
    "Perplexity",
    "Report",
    "methods",
    "perplexity",
    "quantize_",
    "smoothing_factors",
    "text_batches",
]
