"""The folders of tests/data, and what each holds."""

from __future__ import annotations

# folder -> title, bits, group size, symmetric, act-order, least zero point
INTEGERS = {
    "native_4bit_act_order": ("mixed_gemm", 4, 32, False, True, 0),
    "native_8bit": ("mixed_gemm", 8, -1, True, False, 0),
    "awq_gemm": ("AWQ gemm", 4, 32, False, False, 0),
    "awq_gemm_channel": ("AWQ gemm", 4, -1, False, False, 0),
    "awq_gemv": ("AWQ gemv", 4, 32, False, False, 0),
    "awq_gemv_fast": ("AWQ gemv_fast", 4, 64, False, False, 0),
    "gptq_v1_4bit": ("GPTQ v1", 4, 64, True, False, 0),
    "gptq_v1_4bit_zeros": ("GPTQ v1", 4, 32, False, False, 1),
    "gptq_v1_4bit_borrow": ("GPTQ v1", 4, 32, False, False, 0),
    "gptq_v2_4bit_act_order": ("GPTQ v2", 4, 32, False, True, 0),
    "gptq_v1_3bit": ("GPTQ v1", 3, 32, False, False, 1),
    "gptq_v2_2bit": ("GPTQ v2", 2, 32, False, False, 0),
    "gptq_v2_8bit": ("GPTQ v2", 8, -1, True, False, 0),
    "ct_pack_4bit": ("compressed-tensors pack-quantized", 4, 32, True, False, 0),
    "ct_pack_4bit_zeros": ("compressed-tensors pack-quantized", 4, 32, False, False, 0),
    "ct_pack_8bit_channel": ("compressed-tensors pack-quantized", 8, -1, True, False, 0),
    "ct_pack_3bit_dense": ("compressed-tensors pack-quantized", 3, 32, False, False, 0),
    "ct_pack_3bit_aligned": ("compressed-tensors pack-quantized", 3, 32, False, False, 0),
    "ct_pack_4bit_act_order": ("compressed-tensors pack-quantized", 4, 32, True, True, 0),
    "ct_int_8bit": ("compressed-tensors int-quantized", 8, -1, True, False, 0),
}


# folder -> strategy, block
FLOATS = {
    "ct_float_channel": ("channel", None),
    "ct_float_tensor": ("tensor", None),
    "ct_float_block": ("block", [32, 64]),
}
