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
    check_rows,
    check_tensors,
    check_vector,
    rows_of,
)
from .errors import dtype_name, shape_text, wrong_type, wrong_value
from .problem import MAX_INT8_K, OPERAND_DTYPES, check_extents


def is_per_row(t: Tensor, a: Tensor) -> bool:
    """Whether ``t`` has an element for each row of ``a``: [M], [M, 1], or as the rows of ``a``."""
    accepted: tuple[Sequence[int], ...] = ((rows_of(a),), tuple(a.shape[:-1]))
    sizes = tuple(t.shape)
    return sizes in accepted or (sizes[-1:] == (1,) and sizes[:-1] in accepted)


def is_per_column(t: Tensor, n: int) -> bool:
    return tuple(t.shape) in ((n,), (1, n))


def _check_operands(op: str, a: Tensor, b: Tensor) -> None:
    if a.dtype not in OPERAND_DTYPES:
        wrong_type(
            op,
            "a",
            "be int8 or float8_e4m3fn",
            dtype_name(a.dtype),
            hint="mixed_gemm.quantize_per_token(a) makes int8 and its scale",
        )
    check_rows(op, "a", a)
    check_dtype(op, "b", b, a.dtype, " (the dtype of a)")
    check_column_major(op, a, b)
    k = a.shape[-1]
    check_extents(op, M=rows_of(a), N=b.shape[1], K=k)
    if a.dtype == torch.int8 and k > MAX_INT8_K:
        wrong_value(
            op,
            "K",
            f"be at most {MAX_INT8_K} for int8, so that the int32 sum of products of -128 cannot "
            "wrap",
            f"K={k}",
            "split K and add the results",
        )


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
    per_row, per_column = f"(M,) or (M, 1), M={rows_of(a)}", f"(N,) or (1, N), N={n}"
    for name, scale, fits, expected in (
        ("scale_a", scale_a, is_per_row(scale_a, a), per_row),
        ("scale_b", scale_b, is_per_column(scale_b, n), per_column),
    ):
        check_dtype(op, name, scale, torch.float32)
        if not fits and scale.numel() != 1:
            wrong_value(op, name, f"have one element or be {expected}", shape_text(scale.shape))
    if azp_adj is not None and a.dtype != torch.int8:
        wrong_type(
            op,
            "a and b",
            "be int8: zero points are integers",
            dtype_name(a.dtype),
            hint="scaled_mm",
        )
    for name, point, fits, expected, hint in (
        ("azp_adj", azp_adj, azp_adj is None or is_per_column(azp_adj, n), per_column, ""),
        (
            "azp",
            azp,
            azp is None or is_per_row(azp, a),
            per_row,
            "one for all rows is folded into azp_adj",
        ),
    ):
        if point is None:
            continue
        check_dtype(op, name, point, torch.int32)
        if not fits:
            wrong_value(op, name, f"be {expected}", shape_text(point.shape), hint=hint)
    if bias is not None:
        check_dtype(op, "bias", bias, out_dtype, " (out_dtype)")
        check_vector(op, "bias", bias, "N", n)
