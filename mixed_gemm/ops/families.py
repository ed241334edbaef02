"""The one list of ops: the files that hold their records, and the functions that users find in
``mixed_gemm`` and in ``mixed_gemm.ops``. A new op stands here, a line for its file and two for its
function, and in no other list of the package.

The list is written out, and not found by a walk over the folder, so that type checkers and editors
read the names as the interpreter does.
"""

from __future__ import annotations

from . import (
    awq,
    block,
    conv,
    conv_int8,
    conv_layout,
    floats,
    gated,
    gemm,
    grouped,
    layout,
    moe,
    ranks,
    repack,
    rounding,
    scaled,
    scaled_dynamic,
)
from .awq import awq_dequantize, awq_gemm
from .block import block_quant_gemm
from .conv import qconv2d
from .conv_int8 import qconv2d_int8
from .conv_layout import pack_conv_weights
from .floats import dequantize_codes, fpA_fpB_gemm, pack_codes, unpack_codes
from .gated import gated_activation
from .gemm import fpA_intB_gemm
from .grouped import grouped_fpA_fpB_gemm, grouped_fpA_intB_gemm
from .layout import dequantize_weights, pack_weights, unpack_weights
from .moe import moe_combine, moe_permute
from .rounding import quantize_fp8, quantize_per_tensor, quantize_per_token
from .scaled import scaled_mm, scaled_mm_azp
from .scaled_dynamic import scaled_mm_dynamic

# The files, as docs/ops.md lists them.
FAMILIES = (
    gemm,
    scaled,
    scaled_dynamic,
    rounding,
    block,
    conv,
    conv_int8,
    awq,
    layout,
    floats,
    grouped,
    conv_layout,
    repack,
    moe,
    gated,
    ranks,
)

__all__ = [
    "awq_dequantize",
    "awq_gemm",
    "block_quant_gemm",
    "dequantize_codes",
    "dequantize_weights",
    "fpA_fpB_gemm",
    "fpA_intB_gemm",
    "gated_activation",
    "grouped_fpA_fpB_gemm",
    "grouped_fpA_intB_gemm",
    "moe_combine",
    "moe_permute",
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
]
