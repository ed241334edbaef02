"""Shape, dtype and device rules of the ops, for the fake kernels: a meta or traced call must refuse
what the eager one refuses, with the same words. The eager side is csrc/ops/checks.h.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .scheme import (
    DTYPES,
    PAD_K,
    check_activation,
    check_bits,
    check_group_size,
    check_zero_mode,
    num_groups,
    packed_shape,
    round_up,
)

_DTYPE_NAMES = ", ".join(str(d).removeprefix("torch.") for d in DTYPES)


def _shape(sizes: Sequence[int]) -> str:
    return "(" + ", ".join(str(s) for s in sizes) + ("," if len(sizes) == 1 else "") + ")"


def check_shape(
    op: str, name: str, tensor: Tensor, rule: str, expected: Sequence[int], because: str
) -> None:
    if tensor.dim() == len(expected) and all(
        have == want for have, want in zip(tensor.shape, expected, strict=True)
    ):
        return
    looks = ""
    if len(expected) == 2 and tuple(tensor.shape) == (expected[1], expected[0]):
        looks = ". Hint: it looks transposed"
    raise RuntimeError(
        f"{op}: {name} must be {rule} = {_shape(expected)}, got {_shape(tensor.shape)}; "
        f"{because}{looks}"
    )


def check_dtype(op: str, name: str, tensor: Tensor, expected: torch.dtype, hint: str) -> None:
    if tensor.dtype != expected:
        raise RuntimeError(f"{op}: {name} must be {expected}, got {tensor.dtype}. Hint: {hint}")


def check_same_device(op: str, first: str, tensors: dict[str, Tensor | None]) -> None:
    device = tensors[first].device  # type: ignore[union-attr]
    for name, tensor in tensors.items():
        if tensor is not None and tensor.device != device:
            raise RuntimeError(
                f"{op}: all tensors must be on one device, got {first} on {device} and {name} on "
                f"{tensor.device}. Hint: move them with .to(device)"
            )


def check_packed(op: str, b_packed: Tensor, n: int, k: int, bits: int) -> None:
    check_dtype(op, "b_packed", b_packed, torch.uint8, "mixed_gemm.pack_weights(q, bits) makes it")
    check_shape(
        op,
        "b_packed",
        b_packed,
        "(round_up(N, 64), round_up(K, 64) * bits / 8)",
        packed_shape(n, k, bits),
        f"N={n}, K={k}, bits={bits}",
    )


def check_scales(
    op: str, scales: Tensor, zeros: Tensor | None, n: int, k: int, group_size: int
) -> None:
    because = f"K={k}, group_size={group_size}"
    shape = (num_groups(k, group_size), n)
    check_shape(op, "scales", scales, "(ceil(K/group_size), N)", shape, because)
    if zeros is not None:
        check_dtype(op, "zeros", zeros, scales.dtype, "zeros have the dtype of scales")
        check_shape(op, "zeros", zeros, "(ceil(K/group_size), N)", shape, because)


def check_gemm(
    op: str,
    a: Tensor,
    b_packed: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    bias: Tensor | None,
    pre_scale: Tensor | None,
    bits: int,
    group_size: int,
    zero_mode: str,
    activation: str,
) -> int:
    """Check every argument of fpA_intB_gemm against the others; returns N."""
    check_bits(op, bits)
    check_zero_mode(op, zero_mode)
    check_activation(op, activation)
    if a.dtype not in DTYPES:
        raise RuntimeError(
            f"{op}: a must be {_DTYPE_NAMES}, got {a.dtype}. Hint: a.to(scales.dtype)"
        )
    if a.dim() < 1:
        raise RuntimeError(f"{op}: a must be [..., K] with 1 or more dimensions, got a 0-d tensor")
    if scales.dim() != 2:
        raise RuntimeError(
            f"{op}: scales must be 2-D (ceil(K/group_size), N), got {_shape(scales.shape)}"
        )
    k, n = a.shape[-1], scales.shape[1]
    check_group_size(op, group_size, k)
    if b_packed.dim() == 2 and b_packed.shape[1] * 8 // bits != round_up(k, PAD_K):
        raise RuntimeError(
            f"{op}: K of a must fit b_packed: a has K={k} (padded {round_up(k, PAD_K)}), b_packed "
            f"{_shape(b_packed.shape)} holds padded K={b_packed.shape[1] * 8 // bits} at "
            f"bits={bits}"
        )
    check_dtype(op, "scales", scales, a.dtype, "a.to(scales.dtype), or convert the module")
    check_scales(op, scales, zeros, n, k, group_size)
    check_packed(op, b_packed, n, k, bits)
    for name, tensor, rule, length in (
        ("bias", bias, "(N,)", n),
        ("pre_scale", pre_scale, "(K,)", k),
    ):
        if tensor is not None:
            check_dtype(op, name, tensor, a.dtype, f"{name}.to(a.dtype)")
            check_shape(op, name, tensor, rule, (length,), f"N={n} from scales, K={k} from a")
    check_same_device(
        op,
        "a",
        {
            "a": a,
            "b_packed": b_packed,
            "scales": scales,
            "zeros": zeros,
            "bias": bias,
            "pre_scale": pre_scale,
        },
    )
    return n
