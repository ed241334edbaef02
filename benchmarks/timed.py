"""The subject of a time: an op on operands stored in some way. The subjects that targets and
reports speak of have names here. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from .schemes import Scheme

GEMM, AWQ_GEMM, BLOCK_GEMM, QCONV2D = "fpA_intB_gemm", "awq_gemm", "block_quant_gemm", "qconv2d"
FLOAT_GEMM = "fpA_fpB_gemm"
DENSE, CONV2D = "F.linear", "F.conv2d"  # ops of torch.nn.functional: cuBLAS and cuDNN on a GPU
ATEN = "aten"  # aten::_weight_int4pack_mm and its sisters
LOOP, LOOP_PRODUCTS = "int_mm_loop", "int_mm_loop_products"


@dataclass(frozen=True)
class Timed:
    """``scheme`` None: whichever was measured. ``kernel``: one configuration of the op; empty: what
    runs when nobody forces one."""

    op: str
    scheme: Scheme | None = None
    kernel: str = ""


def dense(dtype: str) -> Timed:
    return Timed(DENSE, Scheme.dense(dtype))


def _eight_bits(op: str, operand: str, out_dtype: str | None) -> Timed:
    return Timed(op, Scheme(8, None, None, operand, out_dtype))


def _quantizer(op: str) -> Timed:
    return Timed(op, Scheme(16, None, None, "float16", "int8"))


FP8 = "float8_e4m3fn"
SCALED_MM = _eight_bits("scaled_mm", "int8", "float16")
AZP = _eight_bits("scaled_mm_azp", "int8", "float16")  # one zero point, folded into azp_adj
AZP_PER_TOKEN = _eight_bits("scaled_mm_azp, per token", "int8", "float16")
INT_MM = _eight_bits("torch._int_mm", "int8", "int32")
INT_MM_SCALED = _eight_bits("torch._int_mm + scaling", "int8", "float16")
FP8_BF16 = _eight_bits("scaled_mm", FP8, "bfloat16")
FP8_FP16 = _eight_bits("scaled_mm", FP8, "float16")
TORCH_FP8 = _eight_bits("torch._scaled_mm", FP8, "bfloat16")
TORCH_FP8_FAST = _eight_bits("torch._scaled_mm, fast sums", FP8, "bfloat16")
FP8_OURS = _eight_bits("scaled_mm of ours", FP8, "bfloat16")  # where scaled_mm may call torch
FP8_BLOCKS = Timed("scaled_mm of ours, blocks", Scheme(8, 128, None, FP8, "bfloat16"))
MSLK = _eight_bits("mslk, rows", FP8, "bfloat16")
DEEP_GEMM = Timed("deep_gemm, blocks", Scheme(8, 128, None, FP8, "bfloat16"))
INT8_BF16 = _eight_bits("scaled_mm", "int8", "bfloat16")
W8A8_LAYER = _eight_bits("quantize_per_token + scaled_mm", "float16", None)
DENSE_FP16 = dense("float16")
QUANTIZE = _quantizer("quantize_per_token")
QUANTIZE_AZP = _quantizer("quantize_per_token, asymmetric")
QUANTIZE_TENSOR = _quantizer("quantize_per_tensor")
QUANTIZE_FP8 = Timed("quantize_fp8", Scheme(16, None, None, "bfloat16", FP8))
QUANTIZE_FP8_BLOCKS = Timed("quantize_fp8, blocks of 128", Scheme(16, None, None, "bfloat16", FP8))
QUANTIZERS = (QUANTIZE, QUANTIZE_AZP, QUANTIZE_TENSOR)
QUANTIZER_BYTES = 3  # an element is read as 16 bits and written as 8
