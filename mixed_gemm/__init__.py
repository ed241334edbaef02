"""GEMMs whose weights are stored in 4 or 8 bits. The main names::

    print(mixed_gemm.quantize_(model))             # every nn.Linear and nn.Conv2d, in place
    y = mixed_gemm.fpA_intB_gemm(a, b_packed, scales, bits=4, group_size=128)
    print(mixed_gemm.plan(1, 4096, 4096), mixed_gemm.env())
    mixed_gemm.tune(model)                         # measure the candidates on this GPU

Everything works on CPU and CUDA tensors, and says how in its docstring.
"""

from . import _library, _tuned, hf
from ._environment import EnvReport, env
from .bench import BenchResult, bench
from .checkpoint_ops import awq_dequantize, awq_gemm, awq_repack, gptq_repack
from .conv import Conv2d
from .conv_ops import block_quant_gemm, pack_conv_weights, qconv2d, qconv2d_int8
from .hf import enable_transformers, from_pretrained, register_when_imported
from .linear import Linear
from .linear_w8a8 import LinearW8A8
from .loaders import CheckpointError, CheckpointWarning, open_checkpoint, save_checkpoint
from .model import QuantizeReport, quantize_
from .ops import (
    dequantize_weights,
    fpA_intB_gemm,
    fpA_intB_gemm_config,
    pack_weights,
    unpack_weights,
)
from .perplexity import Perplexity, perplexity
from .plan import Candidate, Plan, WhyNot, plan, why_not
from .quantize import quantize_weight
from .quantize_conv import quantize_conv_weight
from .scaled import (
    azp_adjustment,
    quantize_per_tensor,
    quantize_per_token,
    scaled_mm,
    scaled_mm_azp,
)
from .scheme import QuantScheme
from .smoothquant import smoothing_factors
from .tune import TuneResult, tune

__version__ = _library.package_version()
_tuned.install_at_import()
register_when_imported()

__all__ = [
    "BenchResult",
    "Candidate",
    "CheckpointError",
    "CheckpointWarning",
    "Conv2d",
    "EnvReport",
    "Linear",
    "LinearW8A8",
    "MixedGemmConfig",
    "Perplexity",
    "Plan",
    "QuantScheme",
    "QuantizeReport",
    "TuneResult",
    "WhyNot",
    "__version__",
    "awq_dequantize",
    "awq_gemm",
    "awq_repack",
    "azp_adjustment",
    "bench",
    "block_quant_gemm",
    "dequantize_weights",
    "enable_transformers",
    "env",
    "fpA_intB_gemm",
    "fpA_intB_gemm_config",
    "from_pretrained",
    "gptq_repack",
    "open_checkpoint",
    "pack_conv_weights",
    "pack_weights",
    "perplexity",
    "plan",
    "qconv2d",
    "qconv2d_int8",
    "quantize_",
    "quantize_conv_weight",
    "quantize_per_tensor",
    "quantize_per_token",
    "quantize_weight",
    "save_checkpoint",
    "scaled_mm",
    "scaled_mm_azp",
    "smoothing_factors",
    "tune",
    "unpack_weights",
    "why_not",
]


def __getattr__(name: str) -> object:
    if name == "MixedGemmConfig":  # importing it imports transformers
        return hf.MixedGemmConfig
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
