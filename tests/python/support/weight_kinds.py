"""A small module of every kind of quantized weight, and of every way in which one may differ for
whoever reads or writes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from mixed_gemm import Conv2d, Embedding, Int8Conv2d, Linear, Scheme, quantize_weight
from mixed_gemm.weights import QuantizedTensor

N, K = 72, 96


def _linear(**options: Any) -> Callable[[], Any]:
    return lambda: Linear.from_float(nn.Linear(K, N), **options)


def _act_order() -> Linear:
    q, scales, zeros = quantize_weight(torch.randn(N, K), 4, 32, symmetric=False)
    return Linear.from_quantized(
        q, scales, zeros, pre_scale=torch.rand(K) + 0.5, permutation=torch.randperm(K),
        bits=4, group_size=32,
    )  # fmt: skip


def _int8_conv() -> Int8Conv2d:
    ranges: dict[str, Any] = {"input_range": (-1.0, 1.0), "output_range": (-2.0, 2.0)}
    return Int8Conv2d.from_float(nn.Conv2d(24, 40, 3), "static_azp", **ranges)


MODULES: dict[str, Callable[[], Any]] = {
    "int4": _linear(bits=4, group_size=32),
    "int4 zero points": _linear(bits=4, group_size=32, symmetric=False),
    "int4 act-order": _act_order,
    "int8": _linear(scheme="w8a16"),
    "w8a8": _linear(scheme="w8a8", activations="dynamic_azp"),
    "w8a8 static": _linear(scheme="w8a8", activations="static_azp", input_range=(-1.0, 2.0)),
    "w8a8_block": _linear(scheme="w8a8_block", group_size=32, symmetric=False),
    "fp8": _linear(scheme="fp8"),
    "fp8 one scale": _linear(scheme=Scheme.fp8(strategy="tensor")),
    "fp8 blocks": _linear(scheme=Scheme.fp8(strategy="block", block=(16, 32))),
    "rows": lambda: Embedding.from_float(nn.Embedding(N, K)),
    "conv": lambda: Conv2d.from_float(nn.Conv2d(24, 40, 3), bits=8),
    "conv offsets": lambda: Conv2d.from_float(nn.Conv2d(24, 40, 3), bits=4, symmetric=False),
    "int8 conv": _int8_conv,
}


def module(kind: str) -> Any:
    """The same module at every call."""
    torch.manual_seed(0)
    return MODULES[kind]()


def same_parts(a: QuantizedTensor, b: QuantizedTensor) -> bool:
    """Whether two weights are stored alike to the bit."""
    mine, other = a.tensors(), b.tensors()
    same = type(a) is type(b) and a.scheme == b.scheme and mine.keys() == other.keys()
    return same and all(_same(x, other[name]) for name, x in mine.items())


def _same(a: Tensor, b: Tensor) -> bool:
    if a.dtype == b.dtype == torch.float8_e4m3fn:  # which torch.equal does not take
        return torch.equal(a.view(torch.uint8), b.view(torch.uint8))
    return a.dtype == b.dtype and torch.equal(a, b)
