"""The operations that torch.utils.flop_counter counts for an op: those of the dense product.
Padding and the unpacking of codes do not count."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

# (shape of the result, arguments by name with the shape in place of a tensor) -> operations
Flops = Callable[..., int]


def matrix_product(activations: str) -> Flops:
    """2 * M * N * K of the product of ``activations`` [..., K]."""

    def flops(out: torch.Size, **given: Any) -> int:
        return 2 * math.prod(out) * int(given[activations][-1])

    return flops


def _formula(name: str, flops: Flops) -> Callable[..., int]:
    names = [x.name for x in getattr(torch.ops.mixed_gemm, name).default._schema.arguments]

    def formula(*args: Any, out_shape: Any = None, **options: Any) -> int:
        return flops(out_shape, **dict(zip(names, args, strict=False)), **options)

    return formula


def register(formulas: Mapping[str, Flops]) -> None:
    for name, flops in formulas.items():
        register_flop_formula(getattr(torch.ops.mixed_gemm, name))(_formula(name, flops))
