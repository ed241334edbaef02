"""The vocabulary of the convolutions: geometry, memory format, block size, and their rules. The
twin of ``problem``; the library's side is csrc/problem/conv.cpp and layout/conv_layout.h.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .errors import shape_text, wrong_value
from .problem import (
    GROUP_STEP,
    PAD_K,
    ceil_div,
    nearest_group_size,
    packed_shape,
    refuse_non_numbers,
    refuse_tensor,
    round_up,
)

MAX_SETTING = 2**31 - 1
MAX_CONV_INT8_K = 65793  # the int32 sum of K products of 255 * -128 does not wrap

Pair = tuple[int, int]
IntOrPair = int | Sequence[int]

FILTER_RULE = "(Co, Ci, Kh, Kw)"


def channels_per_tap(in_c: int) -> int:
    """Channels of one tap in K of a packed filter: 8, 16, 32 or a multiple of 64."""
    if in_c > 32:
        return round_up(in_c, PAD_K)
    return 32 if in_c > 16 else 16 if in_c > 8 else 8


def conv_packed_shape(out_c: int, in_c: int, kernel_size: Sequence[int], weight: str) -> Pair:
    """Shape of the packed uint8 filter of a logical ``[Co, Ci, Kh, Kw]``.

    Args:
        weight: a name in ``WEIGHTS``.
    """
    return packed_shape(out_c, math.prod(kernel_size) * channels_per_tap(in_c), weight)


def pair(where: str, name: str, value: IntOrPair) -> Pair:
    """``value`` as (height, width); an int stands for both.

    Raises:
        ValueError: there are not two, or one is a bool.
    """
    values = (value, value) if isinstance(value, int) else tuple(value)
    if len(values) != 2 or any(isinstance(x, bool) for x in values):
        got = repr(value) if isinstance(value, int) else shape_text(values)
        wrong_value(where, name, "be an int or two (height, width)", got)
    return values[0], values[1]


def check_block_size(where: str, block_size: int, extent: int, extent_name: str = "Ci") -> None:
    """Raise ``ValueError`` unless ``block_size`` is -1 or a multiple of 16, at most ``extent``."""
    if isinstance(block_size, bool):
        wrong_value(where, "block_size", "be an int", str(block_size))
    if block_size == -1:
        return
    divides = block_size >= 1 and block_size % GROUP_STEP == 0
    if divides and block_size <= extent:
        return
    rule = "be -1 (one block) or a positive multiple of 16"
    wrong_value(
        where,
        "block_size",
        f"not be larger than {extent_name}" if divides else rule,
        f"block_size={block_size}, {extent_name}={extent}",
        hint=f"block_size={nearest_group_size(extent, block_size)} is accepted",
    )


@dataclass(frozen=True)
class ConvGeometry:
    """How a filter moves over an image; every pair is (height, width)."""

    kernel_size: Pair
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)

    def check(self, where: str) -> None:
        """Raise ``ValueError`` unless kernel, stride and dilation are 1 or more, padding 0."""
        for name, least in (("kernel_size", 1), ("stride", 1), ("padding", 0), ("dilation", 1)):
            values: Pair = getattr(self, name)
            if min(values) < least or max(values) > MAX_SETTING:
                wrong_value(where, name, f"be in {least}..{MAX_SETTING}", shape_text(values))

    def output_size(self, image: Sequence[int]) -> Pair:
        """The height and width of the output for an image of height and width ``image``."""
        sizes = []
        settings = (self.kernel_size, self.stride, self.padding, self.dilation)
        for size, kernel, stride, padding, dilation in zip(image, *settings, strict=True):
            sizes.append((size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1)
        return sizes[0], sizes[1]


def geometry_of(
    op: str,
    kernel_size: IntOrPair,
    stride: IntOrPair,
    padding: IntOrPair,
    dilation: IntOrPair,
) -> ConvGeometry:
    """Make the geometry from the arguments of an op, where an int stands for two."""
    return ConvGeometry(
        pair(op, "kernel_size", kernel_size),
        pair(op, "stride", stride),
        pair(op, "padding", padding),
        pair(op, "dilation", dilation),
    )


def is_channels_last(images: Tensor) -> bool:
    """Whether the strides of a 4-D tensor order it as ``torch.channels_last``; where they do not
    tell (a single pixel and channel), it is not. The rule that torch follows for its outputs."""
    least = 0
    if images.stride(1) == 0:
        return False
    for dim in (1, 3, 2, 0):
        size, stride = images.shape[dim], images.stride(dim)
        if size == 0 or stride < least or (dim == 0 and least == images.stride(1)):
            return False
        least = stride * size if size > 1 else stride
    return True


def new_images(input: Tensor, out_c: int, geometry: ConvGeometry, dtype: torch.dtype) -> Tensor:
    """The images that come out, without numbers, in the memory format of ``input``."""
    channels_last = is_channels_last(input)
    return torch.empty(
        (input.shape[0], out_c, *geometry.output_size(input.shape[2:])),
        dtype=dtype,
        device=input.device,
        memory_format=torch.channels_last if channels_last else torch.contiguous_format,
    )


def num_blocks(in_c: int, block_size: int) -> int:
    """Rows of ``scales``: ceil(in_c / block_size), where -1 is one block."""
    return 1 if block_size == -1 else ceil_div(in_c, block_size)


def check_int8_scalars(
    op: str,
    input_scale: float,
    input_zero_point: int,
    output_scale: float,
    output_zero_point: int,
    clamp: tuple[int, int],
) -> None:
    """Raise ``ValueError`` unless scales are positive and finite, the rest int8, and clamp_min at
    most clamp_max."""
    integers = {
        "input_zero_point": input_zero_point,
        "output_zero_point": output_zero_point,
        "clamp_min": clamp[0],
        "clamp_max": clamp[1],
    }
    for name, scale in (("input_scale", input_scale), ("output_scale", output_scale)):
        refuse_tensor(op, name, scale, "be a number")
        if isinstance(scale, (int, float)) and not (scale > 0 and math.isfinite(scale)):
            wrong_value(op, name, "be positive and finite", f"{scale:g}")
    refuse_non_numbers(op, **integers)
    if not all(isinstance(value, int) for value in integers.values()):
        return  # the dispatcher names the declared type
    for name, value in integers.items():
        if not -128 <= value <= 127:
            wrong_value(op, name, "be in -128..127", str(value))
    if clamp[0] > clamp[1]:
        wrong_value(op, "clamp_min", "not be above clamp_max", f"{clamp[0]} and {clamp[1]}")
