"""The result of an oracle, and how far another result is from it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

# dtype -> (u: largest relative rounding error, eta: half of the smallest subnormal)
ROUNDING = {
    torch.float16: (2.0**-11, 2.0**-25),
    torch.bfloat16: (2.0**-8, 2.0**-134),
    torch.float32: (2.0**-24, 2.0**-150),
}


@dataclass(frozen=True)
class Oracle:
    """The exact output of a GEMM and two bounds on the error of a correct kernel.

    Attributes:
        expected: float64 ``[..., N]``. statistical, hard: bounds of its elements, as of
            :func:`mixed_gemm.reference.error_bound` and :func:`mixed_gemm.reference.oracle`.
    """

    expected: Tensor
    statistical: Tensor
    hard: Tensor


def error_ratio(out: Tensor, expected: Tensor, bound: Tensor) -> float:
    """max |out - expected| / bound; inf when ``out`` has a NaN or another shape, 0 when empty.

    Above 1 the kernel is wrong.

    Args:
        out: of any float dtype. expected, bound: float64, in its shape.
    """
    if out.shape != expected.shape:
        return math.inf
    if out.numel() == 0:
        return 0.0
    ratio = (out.double() - expected).abs() / bound
    return math.inf if ratio.isnan().any() else float(ratio.max())
