"""What the tensors of a ``QuantizedWeight`` must be for each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..ops.problem import DTYPES, WEIGHTS, ZERO_MODES, ceil_div
from .rounding_fp8 import FP8
from .scheme import FLOAT8

if TYPE_CHECKING:
    from .exchange import QuantizedWeight


def problems_of(weight: QuantizedWeight) -> list[str]:
    """Why its tensors and settings do not fit each other, in words, but for values that only a look
    at all of them finds; empty when they do."""
    if weight.q.dim() != 2 or weight.q.dtype not in (torch.int8, FP8) or weight.q.numel() == 0:
        return [f"q must be int8 or float8_e4m3fn [N, K], got {weight.q.dtype} {weight.shape}"]
    n, k = weight.shape
    problems = []
    if weight.weight not in ((FLOAT8,) if weight.is_fp8 else WEIGHTS):
        problems.append(_type_problem(weight))
    if weight.group_size != -1 and not 0 < weight.group_size <= k:
        problems.append(f"group_size must be -1 or in 1..K={k}, got {weight.group_size}")
        return problems
    if weight.zero_mode not in ZERO_MODES or (weight.zeros is None) != (weight.zero_mode == "none"):
        problems.append(
            f"zero_mode must be one of {ZERO_MODES}, and 'none' exactly without zeros, got "
            f"{weight.zero_mode!r} {'without' if weight.zeros is None else 'with'} zeros"
        )
    groups = (1 if weight.group_size == -1 else ceil_div(k, weight.group_size), n)
    shapes = {"scales": groups, "zeros": groups, "bias": (n,), "pre_scale": (k,)}
    for field, shape in shapes.items():
        tensor: Tensor | None = getattr(weight, field)
        if tensor is not None and (tuple(tensor.shape) != shape or tensor.dtype not in DTYPES):
            problems.append(
                f"{field} must be float16, bfloat16 or float32 {shape}, got {tensor.dtype} "
                f"{tuple(tensor.shape)}"
            )
    if weight.zeros is not None and weight.zeros.dtype != weight.scales.dtype:
        problems.append(f"zeros must be {weight.scales.dtype} as scales, got {weight.zeros.dtype}")
    if weight.block is not None:
        problems += _block_problems(weight, weight.block)
    order = weight.permutation
    if order is not None and (order.dtype != torch.int64 or tuple(order.shape) != (k,)):
        found = f"{order.dtype} {tuple(order.shape)}"
        problems.append(f"permutation must be int64 ({k},), got {found}")
    return problems


def _type_problem(weight: QuantizedWeight) -> str:
    """In the words of ``bits``, where these say it."""
    bits = weight.weight.removeprefix("int")
    if bits.lstrip("-").isdecimal():
        return f"bits must be 4 or 8 (8 for float8), got {bits}"
    expected = FLOAT8 if weight.is_fp8 else " or ".join(WEIGHTS)
    return f"weight must be {expected} where q is {weight.q.dtype}, got {weight.weight!r}"


def _block_problems(weight: QuantizedWeight, block: tuple[int, int]) -> list[str]:
    rows, columns = block
    size = -1 if columns >= weight.shape[1] else columns
    if not weight.is_fp8 or rows < 1 or columns < 1 or weight.group_size != size:
        return [
            "block must be (rows, group_size) of float8 weights, got "
            f"{block} with group_size={weight.group_size} of {weight.q.dtype}"
        ]
    if weight.scales.is_meta or weight.scales.shape[1] != weight.shape[0]:
        return []
    shared = weight.scales[:, ::rows].repeat_interleave(rows, 1)[:, : weight.shape[0]]
    if not torch.equal(shared, weight.scales):
        return [f"scales must be the same for the {rows} rows of a block {block}"]
    return []
