"""The rules of the operands of ``scaled_mm``, for its fake kernels and for float8 that torch
multiplies. The twin of csrc/ops/scaled_mm/checks.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .arguments import (
    check_column_major,
    check_dtype,
    check_float,
    check_matrix,
    check_rows,
    check_tensors,
    check_vector,
    rows_of,
)
from .errors import dtype_name, shape_text, wrong_type, wrong_value
from .problem import MAX_EXTENT, MAX_INT8_K, OPERAND_DTYPES, ceil_div, check_extents


def is_per_row(t: Tensor, a: Tensor) -> bool:
    """Whether ``t`` has an element for each row of ``a``: [M], [M, 1], or as the rows of ``a``."""
    accepted: tuple[Sequence[int], ...] = ((rows_of(a),), tuple(a.shape[:-1]))
    sizes = tuple(t.shape)
    return sizes in accepted or (sizes[-1:] == (1,) and sizes[:-1] in accepted)


def is_per_column(t: Tensor, n: int) -> bool:
    return tuple(t.shape) in ((n,), (1, n))


def _check_operands(op: str, a: Tensor, b: Tensor) -> None:
    if a.dtype not in OPERAND_DTYPES:
        hint = "mixed_gemm.quantize_per_token(a) makes int8 and its scale"
        if a.dtype == torch.float8_e5m2:
            hint = "mixed_gemm.ops.quantize_fp8(a.float()) makes float8_e4m3fn and its scale"
        wrong_type(op, "a", "be int8 or float8_e4m3fn", dtype_name(a.dtype), hint=hint)
    check_rows(op, "a", a)
    check_dtype(op, "b", b, a.dtype, " (the dtype of a)")
    if a.dtype == torch.int8:
        check_int8_sizes(op, a, b)
    else:
        _check_sizes(op, a, b)


def _check_sizes(op: str, a: Tensor, b: Tensor) -> None:
    check_column_major(op, a, b)
    check_extents(op, M=rows_of(a), N=b.shape[1], K=a.shape[-1])


def check_int8_sizes(op: str, a: Tensor, b: Tensor) -> None:
    """That the sizes of the operands of an int8 product fit."""
    _check_sizes(op, a, b)
    k = a.shape[-1]
    if k > MAX_INT8_K:
        wrong_value(
            op,
            "K",
            f"be at most {MAX_INT8_K} for int8, so that the int32 sum of products of -128 cannot "
            "wrap",
            f"K={k}",
            "split K and add the results",
        )


def _check_block_scales(
    op: str, a: Tensor, b: Tensor, scales: tuple[Tensor, Tensor], block_size: Sequence[int]
) -> None:
    """Of a [..., ceil(K / elements)], of b [ceil(N / rows), the same]."""
    got = shape_text(block_size)
    if len(block_size) != 2 or not all(1 <= size <= MAX_EXTENT for size in block_size):
        expected = f"be (rows of the weight, elements of K), each in 1..{MAX_EXTENT}"
        wrong_value(op, "block_size", expected, got)
    if a.dtype == torch.int8:
        expected = "be None for int8, whose sums go through all of K"
        hint = "mixed_gemm.block_quant_gemm has scales of blocks for int8"
        wrong_value(op, "block_size", expected, got, hint=hint)
    (k, n), m, (scale_a, scale_b) = b.shape, rows_of(a), scales
    blocks = ceil_div(k, block_size[1])
    because = f"M={m}, N={n}, K={k}, block_size={got}"
    check_dtype(op, "scale_a", scale_a, torch.float32)
    sizes = (*a.shape[:-1], blocks)
    if tuple(scale_a.shape) not in (sizes, (m, blocks)):
        wrong_value(
            op,
            "scale_a",
            f"be (..., ceil(K/block_size[1])) = {shape_text(sizes)}",
            shape_text(scale_a.shape),
            because,
            "mixed_gemm.ops.quantize_fp8(a, block_size=...) makes it",
        )
    check_dtype(op, "scale_b", scale_b, torch.float32)
    rule = "(ceil(N/block_size[0]), ceil(K/block_size[1]))"
    check_matrix(op, "scale_b", scale_b, rule, (ceil_div(n, block_size[0]), blocks), because, True)


def _per_row(a: Tensor) -> str:
    return f"(M,) or (M, 1), M={rows_of(a)}"


def _per_column(n: int) -> str:
    return f"(N,) or (1, N), N={n}"


def _check_scale(op: str, name: str, scale: Tensor, fits: bool, expected: str) -> None:
    check_dtype(op, name, scale, torch.float32)
    if not fits and scale.numel() != 1:
        wrong_value(op, name, f"have one element or be {expected}", shape_text(scale.shape))


def check_scale_of_columns(op: str, scale: Tensor, n: int) -> None:
    """``scale_b``: one, or one for each of the ``n`` columns."""
    _check_scale(op, "scale_b", scale, is_per_column(scale, n), _per_column(n))


def check_azp_adjustment(op: str, azp_adj: Tensor, n: int) -> None:
    """``azp_adj``: an integer for each of the ``n`` columns."""
    check_dtype(op, "azp_adj", azp_adj, torch.int32)
    if not is_per_column(azp_adj, n):
        wrong_value(op, "azp_adj", f"be {_per_column(n)}", shape_text(azp_adj.shape))


def check_bias(op: str, bias: Tensor, dtype: torch.dtype, why: str, n: int) -> None:
    """``bias``: ``[n]`` in ``dtype``; ``why`` says which that is."""
    check_dtype(op, "bias", bias, dtype, why)
    check_vector(op, "bias", bias, "N", n)


def check_scaled_mm(
    op: str,
    a: Tensor,
    b: Tensor,
    scales: tuple[Tensor, Tensor],
    bias: Tensor | None,
    out_dtype: torch.dtype,
    azp_adj: Tensor | None = None,
    azp: Tensor | None = None,
    with_azp: bool = False,
    block_size: Sequence[int] | None = None,
) -> None:
    """Check every argument of scaled_mm and, ``with_azp``, of scaled_mm_azp against the others.

    Args:
        scales: of ``a`` and of ``b``. The rest as in scaled_mm_azp.
    """
    scale_a, scale_b = scales
    required = {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b}
    if with_azp:
        required["azp_adj"] = azp_adj  # type: ignore[assignment]
    check_tensors(op, required, {"azp": azp, "bias": bias})
    _check_operands(op, a, b)
    check_float(op, "out_dtype", out_dtype)
    n = b.shape[1]
    if block_size is not None:
        _check_block_scales(op, a, b, scales, block_size)
    else:
        _check_scale(op, "scale_a", scale_a, is_per_row(scale_a, a), _per_row(a))
        check_scale_of_columns(op, scale_b, n)
    if azp_adj is not None and a.dtype != torch.int8:
        wrong_type(
            op,
            "a and b",
            "be int8: zero points are integers",
            dtype_name(a.dtype),
            hint="scaled_mm",
        )
    if azp_adj is not None:
        check_azp_adjustment(op, azp_adj, n)
    if azp is not None:
        check_dtype(op, "azp", azp, torch.int32)
        if not is_per_row(azp, a):
            hint = "one for all rows is folded into azp_adj"
            wrong_value(op, "azp", f"be {_per_row(a)}", shape_text(azp.shape), hint=hint)
    if bias is not None:
        check_bias(op, bias, out_dtype, " (out_dtype)", n)
