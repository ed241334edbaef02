"""Calls of qconv2d_int8 from one seed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mixed_gemm.ops.conv_problem import Pair


@dataclass(frozen=True)
class Int8Case:
    images: int = 2
    in_c: int = 19
    out_c: int = 21
    size: Pair = (7, 6)
    kernel: Pair = (3, 3)
    stride: Pair = (1, 1)
    padding: Pair = (1, 1)
    dilation: Pair = (1, 1)
    bias: bool = True
    per_channel: bool = True
    channels_last: bool = True
    zero_point: int = 17

    def __str__(self) -> str:
        return "-".join(str(x).replace(", ", "x") for x in vars(self).values())


def make(
    case: Int8Case, device: str = "cpu", seed: int = 0
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Tensors and options of the op; scales such that outputs spread over int8 and beyond."""
    g = torch.Generator().manual_seed(seed)

    def integers(*shape: int) -> Tensor:
        return torch.randint(-128, 128, shape, generator=g, dtype=torch.int8)

    images = integers(case.images, case.in_c, *case.size)
    if case.channels_last:
        images = images.contiguous(memory_format=torch.channels_last)
    weight = integers(case.out_c, case.in_c, *case.kernel)
    k = case.in_c * math.prod(case.kernel)
    sign = torch.randint(0, 2, (case.out_c,), generator=g) * 2 - 1
    scale = (0.5 + torch.rand(case.out_c, generator=g)) * sign / 128
    scale = scale if case.per_channel else scale[:1]
    bias = torch.randn(case.out_c, generator=g) if case.bias else None
    options = {
        "input_scale": 0.031,
        "input_zero_point": case.zero_point,
        "output_scale": 0.031 * 73 / 128 * 73 * k**0.5 / 90,
        "output_zero_point": -5,
        "stride": case.stride,
        "padding": case.padding,
        "dilation": case.dilation,
    }
    tensors = (images, weight, scale, bias)
    return tuple(None if t is None else t.to(device) for t in tensors), options
