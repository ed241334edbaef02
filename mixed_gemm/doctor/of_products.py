"""Checks of the ops that multiply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .. import ops, reference
from ..reference import conv as of_conv
from ..reference import floats as of_floats
from ..reference import moe as of_moe
from ..reference import scaled as of_scaled
from ..selection.planning import plan
from .draw import BITS, GROUP, Here, K, M, N, bounded, equal
from .of_weights import awq_words


def gemm(here: Here, call: Callable[..., Tensor]) -> float:
    a, q = here.normal(M, K), here.integers(BITS, N, K)
    scales, zeros = here.scales(K // GROUP, N), here.integers(BITS, K // GROUP, N).half()
    packed = ops.pack_weights(here(q), BITS)
    out = call(here(a), packed, here(scales), here(zeros), bits=BITS, group_size=GROUP)
    return bounded(out, reference.oracle(a, q, scales, zeros, group_size=GROUP))


def gemm_by_name(here: Here) -> float:
    """Return the configuration that ``plan`` names."""
    of_problem: dict[str, Any] = {"bits": BITS, "group_size": GROUP, "zero_mode": "sub"}
    config = plan(M, N, K, dtype=torch.float16, device=here.device, **of_problem).selected
    by_name = torch.ops.mixed_gemm.fpA_intB_gemm_config
    return gemm(here, lambda *parts, **options: by_name(*parts, **options, config=config))


def float_gemm(here: Here, call: Callable[..., Tensor]) -> float:
    """MXFP4's codes, with scales that are powers of two, and a factor for each column."""
    a, codes = here.normal(M, K), here.integers(BITS, N, K) + 8
    scales = torch.exp2(here.integers(2, K // GROUP, N).float() - 1).to(a.dtype)
    factor = here.scales(N, dtype=torch.float32)
    packed = ops.pack_codes(here(codes), "e2m1")
    options: dict[str, Any] = {"weight": "e2m1", "group_size": GROUP}
    out = call(here(a), packed, here(scales), here(factor), **options)
    return bounded(out, of_floats.oracle(a, codes, scales, factor, **options))


def float_gemm_by_name(here: Here) -> float:
    """Return the configuration that ``plan`` names."""
    of_problem: dict[str, Any] = {"weight": "e2m1", "group_size": GROUP}
    config = plan(M, N, K, dtype=torch.float16, device=here.device, **of_problem).selected
    by_name = torch.ops.mixed_gemm.fpA_fpB_gemm_config
    return float_gemm(here, lambda *parts, **options: by_name(*parts, **options, config=config))


def scaled(here: Here, how: str) -> float:
    """``how``: scales alone, zero points beside them ("azp"), or float8."""
    a, w = here.integers(8, M, K), here.integers(8, N, K)
    sums: dict[str, Any] = {}
    points: dict[str, Any] = {}
    if how == "float8":
        a, w = (here.normal(*x.shape).to(torch.float8_e4m3fn) for x in (a, w))
        sums = sums_of_float8(here.device)
    scale_a, scale_b = (here.scales(x, dtype=torch.float32) for x in (M, N))
    dtype = torch.float16
    given = (here(a), here(w).t(), here(scale_a[:, None]), here(scale_b))
    if how == "azp":
        azp = here.integers(8, M, 1, dtype=torch.int32)
        points = {"azp_adj": ops.azp_adjustment(w), "azp": azp}
        on_device = {name: here(x) for name, x in points.items()}
        out = ops.scaled_mm_azp(*given, **on_device, out_dtype=dtype)
    else:
        out = ops.scaled_mm(*given, out_dtype=dtype)
    operands = (a, w.t(), scale_a[:, None], scale_b)
    options: dict[str, Any] = {"out_dtype": dtype, **points, **sums}
    bound = of_scaled.error_bound(*operands, **options)
    return bounded(out, (of_scaled.scaled_mm(*operands, **points), bound))


def sums_of_float8(device: str) -> dict[str, Any]:
    """Tell how the tensor cores of a GPU add float8 up, as ``reference.scaled.error_bound`` takes
    it."""
    if device == "cpu":
        return {}
    if torch.cuda.get_device_capability(device) == (9, 0):
        return {"promotion": of_scaled.FP8_PROMOTION}
    return {"sum_epsilon": of_scaled.HOPPER_FP8_EPSILON}


def scaled_mm_dynamic(here: Here) -> float:
    a, w, scale_b = here.normal(M, K), here.integers(8, N, K), here.scales(N, dtype=torch.float32)
    out = ops.scaled_mm_dynamic(here(a), here(w).t(), here(scale_b))
    q, scale_a, _ = of_scaled.quantize_per_token(a)
    operands = (q, w.t(), scale_a, scale_b)
    bound = of_scaled.error_bound(*operands, out_dtype=a.dtype)
    return bounded(out, (of_scaled.scaled_mm(*operands), bound))


def block_quant_gemm(here: Here) -> float:
    a, w = here.normal(M, K), here.integers(8, N, K)
    scale, offset = here.scales(K // GROUP, N), here.normal(K // GROUP, N)
    out = ops.block_quant_gemm(here(a), here(w).t(), here(scale), here(offset), block_size=GROUP)
    return bounded(out, of_conv.block_oracle(a, w.t(), scale, offset, block_size=GROUP))


def awq_gemm(here: Here) -> float:
    qweight, scales, qzeros, q, zeros = awq_words(here)
    a = here.normal(M, K)
    out = ops.awq_gemm(here(a), here(qweight), here(scales), here(qzeros))
    return bounded(out, reference.oracle(a, q, scales, zeros, group_size=GROUP))


def qconv2d(here: Here) -> float:
    images = here.normal(2, 40, 7, 6)
    q, scales = here.integers(BITS, 24, 40, 3, 3), here.scales(1, 24)
    packed = ops.pack_conv_weights(here(q), BITS)
    out = ops.qconv2d(here(images), packed, here(scales), bits=BITS, kernel_size=3, padding=1)
    return bounded(out, of_conv.oracle(images, q, scales, padding=(1, 1)))


def qconv2d_int8(here: Here) -> float:
    images, w = here.integers(8, 2, 40, 7, 6), here.integers(8, 24, 40, 3, 3)
    options: dict[str, Any] = {
        "input_scale": 0.02, "input_zero_point": 3, "output_scale": 0.5, "output_zero_point": -5,
    }  # fmt: skip
    scale = here.scales(24, dtype=torch.float32)
    out = ops.qconv2d_int8(here(images), here(w), here(scale), **options)
    return equal(out, of_conv.qconv2d_int8(images, w, scale, **options))


def gated_activation(here: Here) -> float:
    a = here.normal(M, K)
    options: dict[str, Any] = {"activation": "swiglu_oai", "limit": 1.0, "alpha": 1.702}
    out = ops.gated_activation(here(a), **options)
    bound = of_moe.gated_error_bound(a, **options)
    return bounded(out, (of_moe.gated_activation(a, **options), bound))
