"""The exact results of the ops, in plain torch and float64, and how far a correct kernel may be
from them: ``gemm`` (whose names are those of this package, too), ``scaled``, ``conv``. Nothing here
calls an op or imports another package of ours."""

from .bounds import ROUNDING, Oracle, error_ratio
from .gemm import (
    ACTIVATION_TABLE,
    VALUES,
    dequantize,
    error_bound,
    expand_groups,
    fpA_intB_gemm,
    oracle,
)

__all__ = [
    "ACTIVATION_TABLE",
    "ROUNDING",
    "VALUES",
    "Oracle",
    "dequantize",
    "error_bound",
    "error_ratio",
    "expand_groups",
    "fpA_intB_gemm",
    "oracle",
]
