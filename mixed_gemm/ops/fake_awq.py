"""Fake kernels of awq.py. The eager checks are csrc/ops/checkpoint/checks.cpp."""

from __future__ import annotations

import torch
from torch import Tensor

from .arguments import (
    check_dims,
    check_dtype,
    check_float,
    check_matrix,
    check_tensors,
    check_vector,
    rows_of,
)
from .errors import dtype_name, shape_text, wrong_type, wrong_value
from .problem import check_problem, packed_shape

_PER_WORD = 8
_MAX_SPLIT = 32


def _check_words(op: str, name: str, tensor: Tensor, shape: str) -> None:
    check_dtype(op, name, tensor, torch.int32, " (packed codes, as the checkpoint holds them)")
    check_dims(op, name, tensor, 2, shape)


def _check_extents(op: str, m: int, n: int, k: int, group_size: int) -> None:
    if k == 0:
        wrong_value(op, "qweight", "have rows", "K=0")
    check_problem(op, m, n, k, 4, group_size)


def _check_weight(op: str, qweight: Tensor, scales: Tensor, qzeros: Tensor) -> tuple[int, int]:
    """(K, N) of an AutoAWQ weight."""
    _check_words(op, "qweight", qweight, "(K, N/8)")
    if scales.dtype == torch.int32 and qzeros.dtype != torch.int32:
        wrong_type(
            op,
            "scales",
            "be floating and qzeros int32",
            f"int32 and {dtype_name(qzeros.dtype)}",
            hint="scales come before qzeros",
        )
    _check_words(op, "qzeros", qzeros, "(K/group_size, N/8)")
    check_float(op, "scales", scales.dtype)
    k, words = qweight.shape
    groups, n = qzeros.shape[0], words * _PER_WORD
    _check_extents(op, 0, n, k, -1)
    if groups == 0 or k % groups != 0 or qzeros.shape[1] != words:
        wrong_value(
            op,
            "qzeros",
            f"be (K/group_size, N/8) = (a divisor of {k}, {words})",
            shape_text(qzeros.shape),
        )
    because = f"N={n} from qweight, K/group_size from qzeros"
    check_matrix(op, "scales", scales, "(K/group_size, N)", (groups, n), because, True)
    _check_extents(op, 0, n, k, -1 if groups == 1 else k // groups)
    return k, n


def _awq_gemm(
    input: Tensor, qweight: Tensor, scales: Tensor, qzeros: Tensor, split_k_iters: int
) -> Tensor:
    op = "mixed_gemm::awq_gemm"
    weight = {"qweight": qweight, "scales": scales, "qzeros": qzeros}
    check_tensors(op, {"input": input, **weight})
    check_float(op, "input", input.dtype, "input.to(scales.dtype)")
    k, n = _check_weight(op, qweight, scales, qzeros)
    if input.dim() < 1 or input.shape[-1] != k:
        wrong_value(
            op,
            "input",
            f"be (..., K) = (..., {k})",
            shape_text(input.shape),
            f"K from qweight {shape_text(qweight.shape)}",
        )
    check_dtype(
        op, "scales", scales, input.dtype, " (the dtype of input)", "scales.to(input.dtype)"
    )
    if split_k_iters < 1 or split_k_iters > _MAX_SPLIT or split_k_iters & (split_k_iters - 1):
        rule = f"be a power of two in 1..{_MAX_SPLIT}"
        wrong_value(op, "split_k_iters", rule, str(split_k_iters))
    _check_extents(op, rows_of(input), n, k, -1)
    return input.new_empty((*input.shape[:-1], n))


def _awq_dequantize(qweight: Tensor, scales: Tensor, qzeros: Tensor) -> Tensor:
    op = "mixed_gemm::awq_dequantize"
    check_tensors(op, {"qweight": qweight, "scales": scales, "qzeros": qzeros})
    k, n = _check_weight(op, qweight, scales, qzeros)
    return scales.new_empty((k, n))


def _awq_repack(qweight: Tensor) -> Tensor:
    op = "mixed_gemm::awq_repack"
    check_tensors(op, {"qweight": qweight})
    _check_words(op, "qweight", qweight, "(K, N/8)")
    k, n = qweight.shape[0], qweight.shape[1] * _PER_WORD
    _check_extents(op, 0, n, k, -1)
    return qweight.new_empty(packed_shape(n, k, 4), dtype=torch.uint8)


def _gptq_repack(qweight: Tensor, perm: Tensor | None = None, *, bits: int) -> Tensor:
    op = "mixed_gemm::gptq_repack"
    check_tensors(op, {"qweight": qweight}, {"perm": perm})
    _check_words(op, "qweight", qweight, "(K*bits/32, N)")
    if bits not in (2, 3, 4, 8):
        hint = "5, 6 and 7 bits are stored in planes (gptq_p), which nothing here reads"
        wrong_value(op, "bits", "be 2, 3, 4 or 8", str(bits), hint=hint)
    rows, n = qweight.shape
    if rows * 32 % bits != 0:
        rule = f"have K*bits/32 rows, a multiple of {bits} for bits={bits}"
        wrong_value(op, "qweight", rule, shape_text(qweight.shape))
    k = rows * 32 // bits
    _check_extents(op, 0, n, k, -1)
    if perm is not None:
        hint = "torch.argsort(g_idx, stable=True).to(torch.int32)"
        check_dtype(op, "perm", perm, torch.int32, hint=hint)
        check_vector(op, "perm", perm, "K", k)
    return qweight.new_empty(packed_shape(n, k, 8 if bits == 8 else 4), dtype=torch.uint8)


def register() -> None:
    for name, fake in (
        ("awq_gemm", _awq_gemm),
        ("awq_dequantize", _awq_dequantize),
        ("awq_repack", _awq_repack),
        ("gptq_repack", _gptq_repack),
    ):
        torch.library.register_fake(f"mixed_gemm::{name}", fake)
