"""Checks of the ops that round activations, whose bits are those of the reference."""

from __future__ import annotations

import torch

from .. import ops
from ..reference import scaled as of_scaled
from .draw import Here, K, M, equal


def quantize_per_token(here: Here) -> float:
    a = here.normal(M, K)
    out = ops.quantize_per_token(here(a), symmetric=False)
    expected = of_scaled.quantize_per_token(a, symmetric=False)
    pairs = zip(out, expected, strict=True)
    return max(equal(x, y) for x, y in pairs if x is not None and y is not None)


def quantize_per_tensor(here: Here) -> float:
    a, scale = here.normal(M, K), here.scales(1, dtype=torch.float32)
    out = ops.quantize_per_tensor(here(a), here(scale))
    return equal(out, of_scaled.quantize_per_tensor(a, scale))


def quantize_fp8(here: Here) -> float:
    a = here.normal(M, K)
    pairs = zip(ops.quantize_fp8(here(a)), of_scaled.quantize_fp8(a), strict=True)
    return max(equal(x, y) for x, y in pairs)
