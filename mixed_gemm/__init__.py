"""GEMMs whose weights are stored in 4 or 8 bits. The main names::

    print(mixed_gemm.quantize_(model))             # every nn.Linear, in place
    y = mixed_gemm.fpA_intB_gemm(a, b_packed, scales, bits=4, group_size=128)
    print(mixed_gemm.plan(1, 4096, 4096), mixed_gemm.env())
    mixed_gemm.tune(model)                         # measure the candidates on this GPU

Everything works on CPU and CUDA tensors, and says how in its docstring.
"""

from . import _library, _tuned, hf
from ._environment import EnvReport, env
from .hf import enable_transformers, from_pretrained, register_when_imported
from .linear import Linear
from .loaders import CheckpointError, CheckpointWarning, open_checkpoint, save_checkpoint
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
from .scaled import (
    azp_adjustment,
    quantize_per_tensor,
    quantize_per_token,
    scaled_mm,
    scaled_mm_azp,
)
from .scheme import QuantScheme
from .tune import TuneResult, tune

__version__ = _library.package_version()
_tuned.install_at_import()
register_when_imported()

__all__ = [
    "Candidate",
    "CheckpointError",
    "CheckpointWarning",
    "EnvReport",
    "Linear",
    "MixedGemmConfig",
    "Plan",
    "QuantScheme",
    "QuantizeReport",
    "TuneResult",
    "WhyNot",
    "__version__",
    "azp_adjustment",
    "dequantize_weights",
    "enable_transformers",
    "env",
    "fpA_intB_gemm",
    "fpA_intB_gemm_config",
    "from_pretrained",
    "open_checkpoint",
    "pack_weights",
    "plan",
    "quantize_",
    "quantize_per_tensor",
    "quantize_per_token",
    "quantize_weight",
    "save_checkpoint",
    "scaled_mm",
    "scaled_mm_azp",
    "tune",
    "unpack_weights",
    "why_not",
]


def __getattr__(name: str) -> object:
    if name == "MixedGemmConfig":  # importing it imports transformers
        return hf.MixedGemmConfig
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
