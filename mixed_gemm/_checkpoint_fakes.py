"""Fake kernels, gradient, autocast and FLOP formula of checkpoint_ops.py. The eager checks
are csrc/ops/checkpoint_checks.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from ._checks import check_dtype, check_same_device, check_shape
from ._fake import like_eager
from ._transforms import register_autocast
from .scheme import DTYPES, check_group_size, packed_shape

_PER_WORD = 8
_MAX_SPLIT = 32


def _check_words(op: str, name: str, tensor: Tensor) -> None:
    check_dtype(op, name, tensor, torch.int32, "packed codes, as the checkpoint holds them")
    if tensor.dim() != 2:
        raise RuntimeError(f"{op}: {name} must be 2-d, got {tuple(tensor.shape)}")


def _check_weight(op: str, qweight: Tensor, scales: Tensor, qzeros: Tensor) -> tuple[int, int]:
    """(K, N) of an AutoAWQ weight."""
    if scales.dtype == torch.int32 and qzeros.dtype != torch.int32:
        raise RuntimeError(f"{op}: scales must be floating. Hint: scales come before qzeros")
    _check_words(op, "qweight", qweight)
    _check_words(op, "qzeros", qzeros)
    if scales.dtype not in DTYPES:
        raise RuntimeError(f"{op}: scales must be float16, bfloat16 or float32, got {scales.dtype}")
    k, words = qweight.shape
    groups = qzeros.shape[0]
    if k == 0:
        raise RuntimeError(f"{op}: qweight must have rows, got K=0")
    if groups == 0 or k % groups != 0 or qzeros.shape[1] != words:
        raise RuntimeError(
            f"{op}: qzeros must be (K/group_size, N/8) = (a divisor of {k}, {words}), got "
            f"{tuple(qzeros.shape)}"
        )
    n = words * _PER_WORD
    check_shape(op, "scales", scales, "(K/group_size, N)", (groups, n), f"N={n} from qweight")
    check_group_size(op, -1 if groups == 1 else k // groups, k)
    check_same_device(op, "qweight", {"qweight": qweight, "scales": scales, "qzeros": qzeros})
    return k, n


@like_eager
def _awq_gemm(
    input: Tensor, qweight: Tensor, scales: Tensor, qzeros: Tensor, split_k_iters: int
) -> Tensor:
    op = "mixed_gemm::awq_gemm"
    k, n = _check_weight(op, qweight, scales, qzeros)
    if input.dim() < 1 or input.shape[-1] != k:
        raise RuntimeError(
            f"{op}: input must be (..., K) = (..., {k}), got {tuple(input.shape)}; K from qweight "
            f"{tuple(qweight.shape)}"
        )
    check_dtype(op, "scales", scales, input.dtype, "scales.to(input.dtype)")
    if split_k_iters < 1 or split_k_iters > _MAX_SPLIT or split_k_iters & (split_k_iters - 1):
        raise RuntimeError(
            f"{op}: split_k_iters must be a power of two in 1..{_MAX_SPLIT}, got {split_k_iters}"
        )
    check_same_device(op, "input", {"input": input, "qweight": qweight})
    return input.new_empty((*input.shape[:-1], n))


@like_eager
def _awq_dequantize(qweight: Tensor, scales: Tensor, qzeros: Tensor) -> Tensor:
    k, n = _check_weight("mixed_gemm::awq_dequantize", qweight, scales, qzeros)
    return scales.new_empty((k, n))


@like_eager
def _awq_repack(qweight: Tensor) -> Tensor:
    op = "mixed_gemm::awq_repack"
    _check_words(op, "qweight", qweight)
    k, n = qweight.shape[0], qweight.shape[1] * _PER_WORD
    if k == 0:
        raise RuntimeError(f"{op}: qweight must have rows, got K=0")
    return qweight.new_empty(packed_shape(n, k, 4), dtype=torch.uint8)


@like_eager
def _gptq_repack(qweight: Tensor, perm: Tensor | None = None, *, bits: int) -> Tensor:
    op = "mixed_gemm::gptq_repack"
    _check_words(op, "qweight", qweight)
    if bits not in (2, 3, 4, 8):
        raise RuntimeError(f"{op}: bits must be 2, 3, 4 or 8, got {bits}")
    rows, n = qweight.shape
    if rows == 0 or rows * 32 % bits != 0:
        raise RuntimeError(
            f"{op}: qweight must have K*bits/32 rows, a multiple of {bits} for bits={bits}, got "
            f"{tuple(qweight.shape)}"
        )
    k = rows * 32 // bits
    if perm is not None:
        hint = "torch.argsort(g_idx, stable=True).to(torch.int32)"
        check_dtype(op, "perm", perm, torch.int32, hint)
        check_shape(op, "perm", perm, "(K,)", (k,), f"K={k} from qweight, bits={bits}")
        check_same_device(op, "qweight", {"qweight": qweight, "perm": perm})
    return qweight.new_empty(packed_shape(n, k, 8 if bits == 8 else 4), dtype=torch.uint8)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, qweight, scales, qzeros, _ = inputs
    if ctx.needs_input_grad[2]:
        raise RuntimeError(
            "mixed_gemm::awq_gemm: scales requires grad, but quantized weights do not train. "
            "Hint: scales.detach()"
        )
    ctx.save_for_backward(qweight, scales, qzeros)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    weight = torch.ops.mixed_gemm.awq_dequantize(*ctx.saved_tensors)
    return grad @ weight.t(), None, None, None, None


def _flops(
    input_shape: Sequence[int],
    qweight_shape: Sequence[int],
    *args: Any,
    out_shape: Sequence[int] | None = None,
    **kwargs: Any,
) -> int:
    return 2 * math.prod(input_shape) * qweight_shape[1] * _PER_WORD


def register() -> None:
    for name, fake in (
        ("awq_gemm", _awq_gemm),
        ("awq_dequantize", _awq_dequantize),
        ("awq_repack", _awq_repack),
        ("gptq_repack", _gptq_repack),
    ):
        torch.library.register_fake(f"mixed_gemm::{name}", fake)
    torch.library.register_autograd("mixed_gemm::awq_gemm", _backward, setup_context=_setup)
    register_autocast(torch.ops.mixed_gemm.awq_gemm.default)
    register_flop_formula(torch.ops.mixed_gemm.awq_gemm)(_flops)
