"""The ops, typed. Each is one call of ``torch.ops.mixed_gemm.<name>``; what is added here is the
exception of the right type (``errors``) and the ImportError when the library did not load.

Importing this package registers fake kernels, gradients, autocast, vmap, FLOP formulas and, once
somebody imports torch.distributed.tensor, what DTensors need (``registry``), so direct calls of
``torch.ops.mixed_gemm.*`` have them too.
"""

from .. import _library

if _library.available:
    from . import registry

    registry.register()

from .awq import awq_dequantize, awq_gemm
from .block import block_quant_gemm, block_sums
from .conv import qconv2d
from .conv_int8 import qconv2d_int8, weight_sums
from .conv_layout import pack_conv_weights
from .floats import dequantize_codes, fpA_fpB_gemm, pack_codes, unpack_codes
from .gemm import fpA_intB_gemm
from .layout import dequantize_weights, pack_weights, unpack_weights
from .repack import awq_repack, gptq_repack
from .rounding import quantize_fp8, quantize_per_tensor, quantize_per_token
from .scaled import azp_adjustment, scaled_mm, scaled_mm_azp
from .scaled_dynamic import scaled_mm_dynamic

__all__ = [
    "awq_dequantize",
    "awq_gemm",
    "awq_repack",
    "azp_adjustment",
    "block_quant_gemm",
    "block_sums",
    "dequantize_codes",
    "dequantize_weights",
    "fpA_fpB_gemm",
    "fpA_intB_gemm",
    "gptq_repack",
    "pack_codes",
    "pack_conv_weights",
    "pack_weights",
    "qconv2d",
    "qconv2d_int8",
    "quantize_fp8",
    "quantize_per_tensor",
    "quantize_per_token",
    "scaled_mm",
    "scaled_mm_azp",
    "scaled_mm_dynamic",
    "unpack_codes",
    "unpack_weights",
    "weight_sums",
]
