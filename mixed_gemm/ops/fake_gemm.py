"""Fake (meta) kernels: output shape, dtype and device, and the refusals of the eager ops."""

from __future__ import annotations

import torch
from torch import Tensor

from .arguments import (
    check_dims,
    check_dtype,
    check_float,
    check_gemm,
    check_packed,
    check_tensors,
    check_weight,
)
from .problem import check_problem, packed_shape


def _pack_weights(q: Tensor, bits: int, *, check: bool = False) -> Tensor:
    op = "mixed_gemm::pack_weights"
    check_tensors(op, {"q": q})
    check_dtype(op, "q", q, torch.int8, " (signed values)", "q.to(torch.int8)")
    check_dims(op, "q", q, 2, "(N, K)")
    check_problem(op, 0, q.shape[0], q.shape[1], bits, -1)
    return q.new_empty(packed_shape(q.shape[0], q.shape[1], bits), dtype=torch.uint8)


def _unpack_weights(b_packed: Tensor, bits: int, n: int, k: int) -> Tensor:
    op = "mixed_gemm::unpack_weights"
    check_tensors(op, {"b_packed": b_packed})
    check_problem(op, 0, n, k, bits, -1)
    check_packed(op, b_packed, n, k, bits)
    return b_packed.new_empty((n, k), dtype=torch.int8)


def _dequantize_weights(
    b_packed: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    *,
    bits: int,
    group_size: int,
    zero_mode: str,
    n: int,
    k: int,
    dtype: torch.dtype,
) -> Tensor:
    op = "mixed_gemm::dequantize_weights"
    check_tensors(op, {"b_packed": b_packed, "scales": scales}, {"zeros": zeros})
    check_float(op, "dtype", dtype)
    check_problem(op, 0, n, k, bits, group_size)
    check_weight(op, b_packed, scales, zeros, bits, group_size, zero_mode, n, k)
    return scales.new_empty((n, k), dtype=dtype)


def _fpA_intB_gemm(
    a: Tensor,
    b_packed: Tensor,
    scales: Tensor,
    zeros: Tensor | None = None,
    bias: Tensor | None = None,
    pre_scale: Tensor | None = None,
    *,
    bits: int,
    group_size: int = -1,
    zero_mode: str = "sub",
    activation: str = "identity",
) -> Tensor:
    op = "mixed_gemm::fpA_intB_gemm"
    n = check_gemm(
        op, a, b_packed, scales, zeros, bias, pre_scale, bits, group_size, zero_mode, activation
    )
    return a.new_empty((*a.shape[:-1], n))


def _fpA_intB_gemm_config(
    a: Tensor,
    b_packed: Tensor,
    scales: Tensor,
    zeros: Tensor | None = None,
    bias: Tensor | None = None,
    pre_scale: Tensor | None = None,
    *,
    bits: int,
    group_size: int = -1,
    zero_mode: str = "sub",
    activation: str = "identity",
    config: str,
) -> Tensor:
    op = "mixed_gemm::fpA_intB_gemm_config"
    n = check_gemm(
        op, a, b_packed, scales, zeros, bias, pre_scale, bits, group_size, zero_mode, activation
    )
    return a.new_empty((*a.shape[:-1], n))


def register() -> None:
    for name, fake in (
        ("pack_weights", _pack_weights),
        ("unpack_weights", _unpack_weights),
        ("dequantize_weights", _dequantize_weights),
        ("fpA_intB_gemm", _fpA_intB_gemm),
        ("fpA_intB_gemm_config", _fpA_intB_gemm_config),
    ):
        torch.library.register_fake(f"mixed_gemm::{name}", fake)
