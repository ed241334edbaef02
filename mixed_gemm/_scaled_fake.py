"""Fake (meta) kernels of the 8-bit GEMMs and the quantizers, with the refusals of the eager ops
(csrc/ops/scaled_checks.cpp) and their words."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ._checks import _shape, check_dtype, check_same_device, check_shape
from ._fake import like_eager
from .scheme import DTYPES, MAX_INT8_K, OPERAND_DTYPES


def _rows(a: Tensor) -> int:
    return math.prod(a.shape[:-1])  # Size.numel() would fix a symbolic batch to its example


def _is_per_row(t: Tensor, a: Tensor) -> bool:
    accepted: tuple[Sequence[int], ...] = ((_rows(a),), tuple(a.shape[:-1]))
    sizes = tuple(t.shape)
    return sizes in accepted or (sizes[-1:] == (1,) and sizes[:-1] in accepted)


def _is_per_column(t: Tensor, n: int) -> bool:
    return tuple(t.shape) in ((n,), (1, n))


def _check_operands(op: str, a: Tensor, b: Tensor) -> None:
    if a.dim() < 1:
        raise RuntimeError(f"{op}: a must be (..., K), got a 0-d tensor")
    if a.dtype not in OPERAND_DTYPES:
        raise RuntimeError(
            f"{op}: a must be int8 or float8_e4m3fn, got {a.dtype}. "
            "Hint: mixed_gemm.quantize_per_token(a) makes int8 and its scale"
        )
    check_dtype(op, "b", b, a.dtype, "b has the dtype of a")
    k = a.shape[-1]
    if b.dim() != 2:
        raise RuntimeError(f"{op}: b must be 2-d (K, N), got {_shape(b.shape)}")
    if b.shape[0] != k:
        looks = ". Hint: it looks transposed, pass weight.t()" if b.shape[1] == k else ""
        raise RuntimeError(
            f"{op}: b must be (K, N) with K={k} of a, got {_shape(b.shape)}{looks} of an [N, K] "
            "weight"
        )
    if k > 1 and b.stride(0) != 1:
        raise RuntimeError(
            f"{op}: b must be column-major, stride(0) == 1 as weight.t() of a contiguous [N, K] "
            f"weight has it, got strides {_shape(b.stride())}. Hint: b.t().contiguous().t(), once"
        )
    if a.dtype == torch.int8 and k > MAX_INT8_K:
        raise RuntimeError(
            f"{op}: K must be at most {MAX_INT8_K} for int8, so that the int32 sum of products of "
            f"-128 cannot wrap, got K={k}; split K and add the results"
        )


def check_scaled_mm(
    op: str,
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None,
    out_dtype: torch.dtype,
    azp_adj: Tensor | None = None,
    azp: Tensor | None = None,
) -> None:
    """Check every argument of scaled_mm and scaled_mm_azp against the others."""
    _check_operands(op, a, b)
    n = b.shape[1]
    if out_dtype not in DTYPES:
        raise RuntimeError(f"{op}: out_dtype must be float16, bfloat16 or float32, got {out_dtype}")
    per_row, per_column = f"(M,) or (M, 1), M={_rows(a)}", f"(N,) or (1, N), N={n}"
    if azp_adj is not None and a.dtype != torch.int8:
        raise RuntimeError(
            f"{op}: a and b must be int8: zero points are integers, got {a.dtype}. Hint: scaled_mm"
        )
    vectors = (
        ("scale_a", scale_a, torch.float32, _is_per_row(scale_a, a), per_row),
        ("scale_b", scale_b, torch.float32, _is_per_column(scale_b, n), per_column),
    )
    for name, tensor, dtype, fits, expected in vectors:
        check_dtype(op, name, tensor, dtype, f"{name}.float()")
        if not fits and tensor.numel() != 1:
            raise RuntimeError(
                f"{op}: {name} must have one element or be {expected}, got {_shape(tensor.shape)}"
            )
    points = (
        ("azp_adj", azp_adj, azp_adj is None or _is_per_column(azp_adj, n), per_column),
        ("azp", azp, azp is None or _is_per_row(azp, a), per_row),
    )
    for name, point, fits, expected in points:
        if point is None:
            continue
        check_dtype(op, name, point, torch.int32, f"{name}.int()")
        if not fits:
            raise RuntimeError(f"{op}: {name} must be {expected}, got {_shape(point.shape)}")
    if bias is not None:
        check_dtype(op, "bias", bias, out_dtype, "bias has out_dtype")
        check_shape(op, "bias", bias, "(N,)", (n,), f"N={n} from b")
    tensors = {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b, "bias": bias}
    check_same_device(op, "a", {**tensors, "azp_adj": azp_adj, "azp": azp})


def _scaled_mm(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    *,
    out_dtype: torch.dtype,
) -> Tensor:
    check_scaled_mm("mixed_gemm::scaled_mm", a, b, scale_a, scale_b, bias, out_dtype)
    return a.new_empty((*a.shape[:-1], b.shape[1]), dtype=out_dtype)


def _scaled_mm_azp(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    azp_adj: Tensor,
    azp: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    out_dtype: torch.dtype,
) -> Tensor:
    op = "mixed_gemm::scaled_mm_azp"
    check_scaled_mm(op, a, b, scale_a, scale_b, bias, out_dtype, azp_adj, azp)
    return a.new_empty((*a.shape[:-1], b.shape[1]), dtype=out_dtype)


def _check_activations(op: str, a: Tensor) -> None:
    if a.dim() < 1:
        raise RuntimeError(f"{op}: a must be (..., K), got a 0-d tensor")
    if a.dtype not in DTYPES:
        raise RuntimeError(f"{op}: a must be float16, bfloat16 or float32, got {a.dtype}")


def _quantize_per_token(
    a: Tensor, *, symmetric: bool = True
) -> tuple[Tensor, Tensor, Tensor | None]:
    _check_activations("mixed_gemm::quantize_per_token", a)
    one_each = (*a.shape[:-1], 1)
    return (
        a.new_empty(a.shape, dtype=torch.int8),
        a.new_empty(one_each, dtype=torch.float32),
        None if symmetric else a.new_empty(one_each, dtype=torch.int32),
    )


def _quantize_per_tensor(a: Tensor, scale: Tensor, azp: Tensor | None = None) -> Tensor:
    op = "mixed_gemm::quantize_per_tensor"
    _check_activations(op, a)
    for name, tensor, dtype in (("scale", scale, torch.float32), ("azp", azp, torch.int32)):
        if tensor is None:
            continue
        check_dtype(op, name, tensor, dtype, f"{name}.to({dtype})")
        if tensor.numel() != 1:
            raise RuntimeError(
                f"{op}: {name} must have one element (per tensor), got {_shape(tensor.shape)}"
            )
    check_same_device(op, "a", {"a": a, "scale": scale, "azp": azp})
    return a.new_empty(a.shape, dtype=torch.int8)


def register() -> None:
    for name, fake in (
        ("scaled_mm", _scaled_mm),
        ("scaled_mm_azp", _scaled_mm_azp),
        ("quantize_per_token", _quantize_per_token),
        ("quantize_per_tensor", _quantize_per_tensor),
    ):
        torch.library.register_fake(f"mixed_gemm::{name}", like_eager(fake))
