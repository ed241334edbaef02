"""Fake (meta) kernels: output shape, dtype and device, and the refusals of the eager ops."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from ._checks import check_dtype, check_gemm, check_packed, check_scales
from .scheme import DTYPES, check_bits, check_group_size, check_zero_mode, packed_shape

P = ParamSpec("P")
T = TypeVar("T")


def like_eager(kernel: Callable[P, T]) -> Callable[P, T]:
    """The library behind the stable ABI only raises RuntimeError; so must its fake."""

    @functools.wraps(kernel)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return kernel(*args, **kwargs)
        except ValueError as error:
            raise RuntimeError(str(error)) from error

    return wrapped


@like_eager
def _pack_weights(q: Tensor, bits: int) -> Tensor:
    op = "mixed_gemm::pack_weights"
    check_bits(op, bits)
    check_dtype(op, "q", q, torch.int8, "q holds signed integers: q.to(torch.int8)")
    if q.dim() != 2:
        raise RuntimeError(f"{op}: q must be 2-D [N, K], got {q.dim()}-D")
    return q.new_empty(packed_shape(q.shape[0], q.shape[1], bits), dtype=torch.uint8)


@like_eager
def _unpack_weights(b_packed: Tensor, bits: int, n: int, k: int) -> Tensor:
    op = "mixed_gemm::unpack_weights"
    check_bits(op, bits)
    check_packed(op, b_packed, n, k, bits)
    return b_packed.new_empty((n, k), dtype=torch.int8)


@like_eager
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
    check_bits(op, bits)
    check_group_size(op, group_size, k)
    check_zero_mode(op, zero_mode)
    for name, value in (("scales", scales.dtype), ("dtype", dtype)):
        if value not in DTYPES:
            raise RuntimeError(f"{op}: {name} must be float16, bfloat16 or float32, got {value}")
    check_packed(op, b_packed, n, k, bits)
    check_scales(op, scales, zeros, n, k, group_size)
    return scales.new_empty((n, k), dtype=dtype)


@like_eager
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
    return _fpA_intB_gemm(
        a,
        b_packed,
        scales,
        zeros,
        bias,
        pre_scale,
        bits=bits,
        group_size=group_size,
        zero_mode=zero_mode,
        activation=activation,
    )


def register() -> None:
    for name, fake in (
        ("pack_weights", _pack_weights),
        ("unpack_weights", _unpack_weights),
        ("dequantize_weights", _dequantize_weights),
        ("fpA_intB_gemm", _fpA_intB_gemm),
        ("fpA_intB_gemm_config", _fpA_intB_gemm_config),
    ):
        torch.library.register_fake(f"mixed_gemm::{name}", fake)
