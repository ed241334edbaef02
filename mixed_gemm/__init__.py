"""GEMMs whose weights are stored in 4 or 8 bits. The main names::

    print(mixed_gemm.quantize_(model))             # every nn.Linear, in place
    y = mixed_gemm.fpA_intB_gemm(a, b_packed, scales, bits=4, group_size=128)
    print(mixed_gemm.plan(1, 4096, 4096), mixed_gemm.env())

Everything works on CPU and CUDA tensors, and says how in its docstring.
"""

from . import _library
from ._environment import EnvReport, env
from .linear import Linear
from .model import QuantizeReport, quantize_
from .ops import (
    dequantize_weights,
    fpA_intB_gemm,
    fpA_intB_gemm_config,
    pack_weights,
    unpack_weights,
)
from .plan import Candidate, Plan, WhyNot, plan, why_not
from .quantize import quantize_weight
from .scheme import QuantScheme

__version__ = _library.package_version()

__all__ = [
    "Candidate",
    "EnvReport",
    "Linear",
    "Plan",
    "QuantScheme",
    "QuantizeReport",
    "WhyNot",
    "__version__",
    "dequantize_weights",
    "env",
    "fpA_intB_gemm",
    "fpA_intB_gemm_config",
    "pack_weights",
    "plan",
    "quantize_",
    "quantize_weight",
    "unpack_weights",
    "why_not",
]
