"""The convolution of int8 by int8 with an int8 result, typed.

N is the number of images, Ci and Co of input and output channels. Where two numbers are taken
(stride, padding, dilation) an int stands for both.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .. import _library
from .autograd import Derivatives
from .conv import merge_images
from .conv_problem import FILTER_RULE, IntOrPair, check_int8_scalars, geometry_of, new_images
from .errors import (
    check_int8_weight,
    translates_errors,
)
from .op import Op, for_tests
from .reasons import DETACH, FORCED, NO_FLOATS
from .sharding import Along, Rows, Sharding
from .vmap import Batching

__all__ = ["qconv2d_int8", "weight_sums"]


@translates_errors("qconv2d_int8")
def qconv2d_int8(
    input: Tensor,
    weight: Tensor,
    weight_scale: Tensor,
    bias: Tensor | None = None,
    *,
    input_scale: float,
    input_zero_point: int,
    output_scale: float,
    output_zero_point: int,
    clamp_min: int = -128,
    clamp_max: int = 127,
    stride: IntOrPair = 1,
    padding: IntOrPair = 0,
    dilation: IntOrPair = 1,
    weight_sums: Tensor | None = None,
) -> Tensor:
    """An int8 convolution with an int8 result: real input is input_scale * (input -
    input_zero_point), the real weight weight_scale * weight, the real output output_scale *
    (output - output_zero_point).

    With sums exact in integers (``reference_conv.qconv2d_int8`` is equal bit for bit)::

        sum = sum of (input - input_zero_point) * weight      pixels outside the image count 0
        m   = float32(input_scale * weight_scale / output_scale)          products in float64
        t   = float32(bias / output_scale + output_zero_point)
        out = round_half_even(clamp(float32(sum) * m + t))    product and sum rounded to float32

    which is the usual requantization, but without truncating the fused bias to an integer.

    Args:
        input: int8 ``[N, Ci, H, W]`` with fewer than 2^31 elements; any strides.
        weight: int8 ``[Co, Ci, Kh, Kw]``, not packed, Ci * Kh * Kw at most 65793. Kept in
            ``torch.channels_last`` it is read as it is, else reordered at every call.
        weight_scale: float32 ``[Co]``, or one element for all; not looked at: where it is NaN,
            the output is whatever integer the conversion gives.
        bias: float32 ``[Co]`` in real units, or None.
        input_scale, output_scale: positive numbers.
        input_zero_point, output_zero_point: in -128..127.
        clamp_min, clamp_max: in -128..127: a fused relu is clamp_min=output_zero_point.
        stride, padding, dilation: as in ``torch.nn.functional.conv2d``.
        weight_sums: int32 ``[Co]`` from :func:`mixed_gemm.ops.weight_sums`, which spares each call
            to sum ``weight``; the result is the same. They are trusted, so that sums of another
            weight give a wrong result.

    Returns:
        int8 ``[N, Co, Ho, Wo]`` in the memory format of ``input``.

    Raises:
        ValueError: a scalar is out of range, or a tensor does not fit the rest.
        TypeError: an argument is no tensor, or of another dtype.
        NotImplementedError, torch.OutOfMemoryError: as in :func:`qconv2d`.
        RuntimeError: ``weight_scale`` or ``bias`` requires grad.
        ImportError: the library did not load.
    """
    _library.require()
    op = "mixed_gemm::qconv2d_int8"
    clamp = (clamp_min, clamp_max)
    check_int8_scalars(op, input_scale, input_zero_point, output_scale, output_zero_point, clamp)
    geometry = geometry_of(op, (1, 1), stride, padding, dilation)  # the kernel is that of weight
    geometry.check(op)
    out: Tensor = torch.ops.mixed_gemm.qconv2d_int8(
        input,
        weight,
        weight_scale,
        bias,
        weight_sums,
        input_scale=input_scale,
        input_zero_point=input_zero_point,
        output_scale=output_scale,
        output_zero_point=output_zero_point,
        clamp_min=clamp_min,
        clamp_max=clamp_max,
        stride=geometry.stride,
        padding=geometry.padding,
        dilation=geometry.dilation,
    )
    return out


def weight_sums(weight: Tensor) -> Tensor:
    """``weight_sums`` of :func:`qconv2d_int8` for a filter, computed once.

    Args:
        weight: int8 ``[Co, Ci, Kh, Kw]``, any strides.

    Returns:
        int32 ``[Co]``, the sums over Ci * Kh * Kw.

    Raises:
        ValueError: ``weight`` is not 4-D, or its storage was freed.
        TypeError: ``weight`` is not int8.
    """
    where = "mixed_gemm.ops.weight_sums"
    check_int8_weight(where, "weight", weight, 4, FILTER_RULE)
    return weight.sum((1, 2, 3), dtype=torch.int32)


def _made(
    input: Tensor,
    weight: Tensor,
    stride: IntOrPair,
    padding: IntOrPair,
    dilation: IntOrPair,
    **others: Any,
) -> Tensor:
    kernel_size = tuple(weight.shape[2:])
    geometry = geometry_of("mixed_gemm::qconv2d_int8", kernel_size, stride, padding, dilation)
    return new_images(input, weight.shape[0], geometry, torch.int8)


def _flops(out: torch.Size, *, weight: Any, **given: Any) -> int:
    """2 * N * Ho * Wo * Co * Ci * Kh * Kw."""
    return int(2 * math.prod(out) * math.prod(weight[1:]))


OPS = (
    Op(
        "qconv2d_int8",
        "an int8 convolution with an int8 result",
        fake=_made,
        derivatives=Derivatives(
            f"rounding to int8 has no gradient. {DETACH}, or qconv2d, which has one"
        ),
        autocast=NO_FLOATS,
        vmap=Batching(("input",), ("bias",), merge_images),
        flops=_flops,
        sharding=Sharding(
            (
                Rows("images", "input", whole=3),
                Along(
                    "output channels",
                    {"weight": 0, "weight_scale": 0, "bias": 0, "weight_sums": 0},
                    result=1,
                ),
            )
        ),
    ),
    for_tests("_qconv2d_int8_config", "the same with a kernel configuration by name", FORCED),
    for_tests("_qconv2d_int8_configs", "the names of its configurations, a line each", FORCED),
)
