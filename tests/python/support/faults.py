"""Mistakes in one argument of an op. CHANGES and bad_scalars() are those of
tests/data/refusals.txt; the others are made from the rules of the op's contract.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from .contract_rules import contracts
from .op_calls import CALLS

Change = Callable[[Tensor], Any]

# Mistakes in a tensor, each with the type of the refusal.
CHANGES: dict[str, tuple[Change, type[Exception]]] = {
    "int64": (lambda x: x.to(torch.int64), TypeError),
    "float64": (lambda x: x.double(), TypeError),
    "complex64": (lambda x: x.to(torch.complex64), TypeError),
    "bool": (lambda x: x.bool(), TypeError),
    "float8_e5m2": (lambda x: x.float().to(torch.float8_e5m2), TypeError),
    "float8_e8m0fnu": (lambda x: x.float().to(torch.float8_e8m0fnu), TypeError),
    "bfloat16": (lambda x: x.bfloat16(), TypeError),
    "0-d": (lambda x: x.flatten()[0], ValueError),
    "one dimension more": (lambda x: x[None], ValueError),
    "flat": (lambda x: x.flatten(), ValueError),
    "a row less": (lambda x: x[1:], ValueError),
    "a column less": (lambda x: x[..., 1:], ValueError),
    "no rows": (lambda x: x[:0], ValueError),
    "no columns": (lambda x: x[..., :0], ValueError),
    "transposed": (lambda x: x.transpose(0, -1), ValueError),
}


def bad_scalars() -> list[tuple[str, str, Any]]:
    values: dict[str, tuple[Any, ...]] = {
        "bits": (-4, 0, 5, 16, 2**40),
        "group_size": (0, -2, 7, 100, 112, 2**31),
        "block_size": (0, -2, 7, 100, 112, 2**31),
        "zero_mode": ("none", "mul", ""),
        "activation": ("tanh", "Relu", ""),
        "n": (-1, 64, 2**31),
        "k": (-1, 64, 2**31),
        "dtype": (torch.int8, torch.float64, torch.float8_e4m3fn, torch.float8_e8m0fnu),
        "out_dtype": (torch.int8, torch.float64, torch.float8_e5m2, torch.float8_e8m0fnu),
        "split_k_iters": (0, -1, 3, 64, 2**40),
        "kernel_size": ([0, 3], [3, 9], [2**31, 1]),
        "stride": ([0, 1], [1, -1], [2**31, 1]),
        "padding": ([-1, 0], [2**30, 2**30], [2**31, 0]),
        "dilation": ([0, 1], [4, 4], [2**31, 1]),
        "input_scale": (0.0, -1.0, float("inf"), float("nan"), -float("nan")),
        "output_scale": (0.0, -0.25, 1e-320 * 0, float("inf"), float("nan")),
        "input_zero_point": (128, -129),
        "output_zero_point": (128, -129),
        "clamp_min": (-129, 128, 101),
        "clamp_max": (-129, 128, -101),
    }
    return [
        (op, name, value)
        for op, make in CALLS.items()
        for name in make()
        for value in values.get(name, ())
        if op != "quantize_fp8" or value < 1  # which takes blocks of any size
    ]


DTYPES = (
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn,
    torch.float8_e5m2, torch.float8_e8m0fnu, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.uint8, torch.bool, torch.complex64,
)  # fmt: skip


def _resized(x: Tensor, dim: int, size: int) -> Tensor:
    """Zeros of the sizes of ``x`` but one; columns that are contiguous stay so."""
    sizes = [*x.shape[:dim], size, *x.shape[dim + 1 :]]
    if x.dim() == 2 and x.stride(0) == 1:
        return x.new_zeros(sizes[::-1]).t()
    return x.new_zeros(sizes)


def bad_tensors(x: Tensor) -> Iterator[tuple[str, Tensor]]:
    """``x`` with every other dtype, every size one off and none at all, a dimension more and less,
    its dimensions exchanged; what is wrong, in words, before each. Some of them fit."""
    for dtype in DTYPES:
        if dtype != x.dtype:
            yield str(dtype), x.float().to(dtype)
    for dim, size in enumerate(x.shape):
        for other in (size - 1, size + 1, 0):
            yield f"{other} in dimension {dim}", _resized(x, dim, other)
    yield "one dimension more", x[None]
    yield "flat", x.flatten()
    yield "no dimension", x.flatten()[0]
    for dim in range(x.dim()):
        yield f"without dimension {dim}", x.select(dim, 0)
    if x.dim() > 1:
        yield "exchanged", x.transpose(0, -1)
        yield "exchanged in memory", x.t().contiguous().t() if x.dim() == 2 else x
    if x.dim() == 2 and x.stride(0) == 1:
        yield "in rows", x.contiguous()


def beside(rule: dict[str, Any]) -> tuple[Any, ...]:
    """The values beside those that a rule of a scalar allows."""
    if rule["kind"] == "choice":
        first = rule["names"][0]
        return "", "none", first.upper(), first + " "
    if rule["kind"] == "range":
        return rule["least"] - 1, rule["most"] + 1, -(2**40), 2**40
    if rule["kind"] == "positive":
        return 0.0, -1.0, float("inf"), -float("inf"), float("nan"), -float("nan")
    if rule["kind"] == "pair":
        return [], [1, 1, 1]
    return ()


def scalars_beside() -> list[tuple[str, str, Any]]:
    """(op, argument, value) of every choice, range, pair and positive number, and every dtype that
    an op does not give."""
    rows = []
    for op, make in CALLS.items():
        given = make()
        for rule in contracts()[op]["rules"]:
            name = rule.get("argument", "")
            values = beside(rule)
            if rule["kind"] == "floats" and isinstance(given.get(name), torch.dtype):
                values = DTYPES[3:]
            rows += [(op, name, value) for value in values if value not in rule.get("names", ())]
    return rows
