"""GEMMs whose weights are stored in 4 or 8 bits. The main names::

    print(mixed_gemm.quantize_(model))             # every nn.Linear and nn.Conv2d, in place
    y = mixed_gemm.fpA_intB_gemm(a, b_packed, scales, bits=4, group_size=128)
    print(mixed_gemm.plan(1, 4096, 4096), mixed_gemm.env())
    mixed_gemm.tune(model)                         # measure the candidates on this GPU

Everything works on CPU and CUDA tensors, and says how in its docstring.
"""

from . import _library
from . import distributed as _shards_models  # noqa: F401
from . import ops as ops  # so that type checkers know these
from . import quantization as quantization
from . import selection as selection
from .doctor.environment import env
from .formats import CheckpointError, CheckpointWarning, open_checkpoint, save_checkpoint
from .integrations.transformers import enable_transformers, from_pretrained
from .integrations.transformers.registration import register_when_imported as _register
from .nn.conv import Conv2d
from .nn.conv_int8 import Int8Conv2d
from .nn.embedding import Embedding
from .nn.linear import Linear
from .ops.awq import awq_dequantize, awq_gemm
from .ops.block import block_quant_gemm
from .ops.conv import qconv2d
from .ops.conv_int8 import qconv2d_int8
from .ops.conv_layout import pack_conv_weights
from .ops.floats import dequantize_codes, fpA_fpB_gemm, pack_codes, unpack_codes
from .ops.gemm import fpA_intB_gemm
from .ops.layout import dequantize_weights, pack_weights, unpack_weights
from .ops.rounding import quantize_fp8, quantize_per_tensor, quantize_per_token
from .ops.scaled import scaled_mm, scaled_mm_azp
from .ops.scaled_dynamic import scaled_mm_dynamic
from .quantization.model import quantize_
from .quantization.report import Report
from .selection.planning import plan, why_not
from .selection.tables import install_at_import as _install_tables
from .selection.tuning import tune
from .weights.rounding import quantize_weight
from .weights.rounding_conv import quantize_conv_weight
from .weights.scheme import Scheme
from .weights.tensor import QuantizedTensor

__version__ = _library.package_version()
_install_tables()
_register()

__all__ = [
    "CheckpointError",
    "CheckpointWarning",
    "Conv2d",
    "Embedding",
    "Int8Conv2d",
    "Linear",
    "MixedGemmConfig",
    "QuantizedTensor",
    "Report",
    "Scheme",
    "__version__",
    "awq_dequantize",
    "awq_gemm",
    "block_quant_gemm",
    "dequantize_codes",
    "dequantize_weights",
    "enable_transformers",
    "env",
    "fpA_fpB_gemm",
    "fpA_intB_gemm",
    "from_pretrained",
    "open_checkpoint",
    "pack_codes",
    "pack_conv_weights",
    "pack_weights",
    "plan",
    "qconv2d",
    "qconv2d_int8",
    "quantize_",
    "quantize_conv_weight",
    "quantize_fp8",
    "quantize_per_tensor",
    "quantize_per_token",
    "quantize_weight",
    "save_checkpoint",
    "scaled_mm",
    "scaled_mm_azp",
    "scaled_mm_dynamic",
    "tune",
    "unpack_codes",
    "unpack_weights",
    "why_not",
]


def __getattr__(name: str) -> object:
    if name == "MixedGemmConfig":  # importing it imports transformers
        from .integrations.transformers import MixedGemmConfig

        return MixedGemmConfig
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
