"""Mistakes in one argument of an op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

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
