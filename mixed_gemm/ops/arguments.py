"""Rules about tensors that the fake kernels share: a meta or traced call must refuse what the eager
one refuses, with the same words and in the same order. The twin of csrc/ops/tensor_checks.cpp, as
the fakes of a family are that of its checks.cpp; tests/python/ops/test_error_types.py compares the
texts. Storages are not looked at: a fake tensor has none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from .errors import dtype_name, shape_text, wrong_type, wrong_value
from .problem import (
    DTYPES,
    check_problem,
    check_zero_mode,
    num_groups,
    packed_shape,
)

GROUP_RULE = "(ceil(K/group_size), N)"
PACKED_RULE = "(round_up(N, 64), round_up(K, 64) * bits / 8)"


def _is_same_device(a: torch.device, b: torch.device) -> bool:
    # "cpu" and "cpu:0" are one; only GPUs are told apart by their index.
    return a == b or (a.type == b.type and a.type != "cuda")


def check_tensors(
    op: str, required: Mapping[str, Tensor], optional: Mapping[str, Tensor | None] | None = None
) -> None:
    """All are tensors, on the device of the first; an optional one may be None."""
    first, reference = next(iter(required.items()))
    for name, tensor in {**required, **(optional or {})}.items():
        if tensor is None and name not in required:
            continue
        if tensor is None:
            wrong_type(op, name, "be a tensor", "None")
        if not _is_same_device(tensor.device, reference.device):
            wrong_value(
                op,
                "all tensors",
                "be on one device",
                f"{first} on {reference.device} and {name} on {tensor.device}",
                hint="move them with .to(device)",
            )


def check_dtype(
    op: str, name: str, tensor: Tensor, expected: torch.dtype, why: str = "", hint: str = ""
) -> None:
    if tensor.dtype != expected:
        wrong_type(op, name, f"be {dtype_name(expected)}{why}", dtype_name(tensor.dtype), hint=hint)


def check_float(op: str, name: str, dtype: torch.dtype, hint: str = "") -> None:
    if dtype not in DTYPES:
        wrong_type(op, name, "be float16, bfloat16 or float32", dtype_name(dtype), hint=hint)


def check_dims(op: str, name: str, tensor: Tensor, dims: int, rule: str) -> None:
    if tensor.dim() != dims:
        wrong_value(op, name, f"be {dims}-d {rule}", shape_text(tensor.shape))


def check_rows(op: str, name: str, tensor: Tensor) -> None:
    """At least one dimension: [..., K]."""
    if tensor.dim() < 1:
        wrong_value(op, name, "be (..., K)", "a 0-d tensor")


def check_matrix(
    op: str,
    name: str,
    tensor: Tensor,
    rule: str,
    expected: tuple[int, int],
    because: str,
    transposable: bool = False,
) -> None:
    """2-D of the ``expected`` sizes; rule is the same in words, because says where they come from.
    transposable: whether it is worth a hint that the two are exchanged."""
    if tensor.dim() == 2 and tensor.shape[0] == expected[0] and tensor.shape[1] == expected[1]:
        return
    transposed = transposable and tuple(tensor.shape) == (expected[1], expected[0])
    wrong_value(
        op,
        name,
        f"be {rule} = {shape_text(expected)}",
        shape_text(tensor.shape),
        because,
        "it looks transposed, pass .t().contiguous()" if transposed else "",
    )


def check_vector(op: str, name: str, tensor: Tensor, extent_name: str, extent: int) -> None:
    if tensor.dim() != 1 or tensor.shape[0] != extent:
        wrong_value(op, name, f"be ({extent_name},) = ({extent},)", shape_text(tensor.shape))


def check_column_major(op: str, a: Tensor, b: Tensor) -> None:
    """b is [K, N] with the K of a [..., K], column-major."""
    check_dims(op, "b", b, 2, "(K, N)")
    k = a.shape[-1]
    if b.shape[0] != k:
        looks = "it looks transposed, pass weight.t() of an [N, K] weight"
        wrong_value(
            op,
            "b",
            f"be (K, N) with K={k} of a",
            shape_text(b.shape),
            hint=looks if b.shape[1] == k else "",
        )
    if k > 1 and b.stride(0) != 1:
        wrong_value(
            op,
            "b",
            "be column-major, stride(0) == 1 as weight.t() of a contiguous [N, K] weight has it",
            f"strides {shape_text(b.stride())}",
            hint="b.t().contiguous().t(), once",
        )


def rows_of(a: Tensor) -> int:
    return math.prod(a.shape[:-1])  # Size.numel() would fix a symbolic batch to its example


def check_packed(op: str, b_packed: Tensor, n: int, k: int, bits: int) -> None:
    check_dtype(op, "b_packed", b_packed, torch.uint8, " (from mixed_gemm.pack_weights)")
    shape = packed_shape(n, k, bits)
    check_matrix(op, "b_packed", b_packed, PACKED_RULE, shape, f"N={n}, K={k}, bits={bits}")


def check_weight(
    op: str,
    b_packed: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    *,
    n: int,
    k: int,
    bits: int,
    group_size: int,
    zero_mode: str,
) -> None:
    """All of a weight but the numbers, which check_problem saw."""
    check_zero_mode(op, zero_mode)
    check_float(op, "scales", scales.dtype)
    shape, because = (num_groups(k, group_size), n), f"K={k}, group_size={group_size}"
    check_matrix(op, "scales", scales, GROUP_RULE, shape, because, True)
    if zeros is not None:
        check_dtype(op, "zeros", zeros, scales.dtype, " (the dtype of scales)")
        check_matrix(op, "zeros", zeros, GROUP_RULE, shape, because, True)
    check_packed(op, b_packed, n, k, bits)


def check_words(op: str, name: str, tensor: Tensor, shape: str) -> None:
    """Packed codes, two-dimensional."""
    check_dtype(op, name, tensor, torch.int32, " (packed codes, as the checkpoint holds them)")
    check_dims(op, name, tensor, 2, shape)


def check_codes(op: str, m: int, n: int, k: int, group_size: int) -> None:
    """The sizes of a weight whose K is that of ``qweight``."""
    if k == 0:
        wrong_value(op, "qweight", "have rows", "K=0")
    check_problem(op, m, n, k, 4, group_size)
