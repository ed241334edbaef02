"""The vocabulary of the convolutions: geometry, memory format, block size, and their rules. The
twin of ``scheme``; the library's side is csrc/dispatch/conv_support.cpp and layout/conv_layout.h.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from .scheme import GROUP_STEP, PAD_K, ceil_div, packed_shape, round_up

MAX_ELEMENTS = 2**31  # of an image tensor: the kernels count elements in 32 bits
MAX_SETTING = 2**31 - 1
MAX_CONV_INT8_K = 65793  # the int32 sum of K products of 255 * -128 does not wrap

Pair = tuple[int, int]
IntOrPair = int | Sequence[int]


def channels_per_tap(in_c: int) -> int:
    """Channels of one tap in K of a packed filter: 8, 16, 32 or a multiple of 64."""
    if in_c > 32:
        return round_up(in_c, PAD_K)
    return 32 if in_c > 16 else 16 if in_c > 8 else 8


def conv_packed_shape(out_c: int, in_c: int, kernel_size: Sequence[int], bits: int) -> Pair:
    """Shape of the packed uint8 filter of a logical ``[Co, Ci, Kh, Kw]``."""
    return packed_shape(out_c, math.prod(kernel_size) * channels_per_tap(in_c), bits)


def pair(where: str, name: str, value: IntOrPair) -> Pair:
    """``value`` as (height, width); an int stands for both.

    Raises:
        ValueError: there are not two, or one is a bool.
    """
    values = (value, value) if isinstance(value, int) else tuple(value)
    if len(values) != 2 or any(isinstance(x, bool) for x in values):
        raise ValueError(f"{where}: {name} must be an int or two (height, width), got {value!r}")
    return values[0], values[1]


def check_block_size(where: str, block_size: int, extent: int, extent_name: str = "Ci") -> None:
    """Raise ``ValueError`` unless ``block_size`` is -1 or a multiple of 16, at most ``extent``."""
    if isinstance(block_size, bool):
        raise ValueError(f"{where}: block_size must be an int, got {block_size}")
    got = f", got block_size={block_size}, {extent_name}={extent}"
    if block_size == -1:
        return
    if block_size < 1 or block_size % GROUP_STEP != 0:
        raise ValueError(
            f"{where}: block_size must be -1 (one block) or a positive multiple of 16{got}"
        )
    if block_size > extent:
        raise ValueError(
            f"{where}: block_size must not be larger than {extent_name}{got}. "
            "Hint: block_size=-1 is one block"
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
                raise ValueError(f"{where}: {name} must be in {least}..{MAX_SETTING}, got {values}")

    def output_size(self, where: str, image: Sequence[int]) -> Pair:
        """Height and width that come out of an image of height and width ``image``.

        Raises:
            ValueError: the kernel is larger than the padded image.
        """
        sizes = []
        spans = [d * (k - 1) + 1 for k, d in zip(self.kernel_size, self.dilation, strict=True)]
        padded = [size + 2 * p for size, p in zip(image, self.padding, strict=True)]
        for span, room, stride in zip(spans, padded, self.stride, strict=True):
            if room < span:
                raise ValueError(
                    f"{where}: kernel_size must not be larger than the padded image: it spans "
                    f"{tuple(spans)} pixels, the image has {tuple(padded)}; "
                    f"kernel_size={self.kernel_size}, dilation={self.dilation}, "
                    f"padding={self.padding}"
                )
            sizes.append((room - span) // stride + 1)
        return sizes[0], sizes[1]


def check_elements(where: str, name: str, sizes: Sequence[int]) -> None:
    """Raise ``ValueError`` for 2^31 elements and more."""
    count = math.prod(sizes)
    if count >= MAX_ELEMENTS:
        raise ValueError(
            f"{where}: {name} must have fewer than 2^31 = {MAX_ELEMENTS} elements, got {count} of "
            f"{tuple(sizes)}. Hint: split the batch"
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


def num_blocks(in_c: int, block_size: int) -> int:
    """Rows of ``scales``: ceil(in_c / block_size), where -1 is one block."""
    return 1 if block_size == -1 else ceil_div(in_c, block_size)


def check_int8_scalars(op: str, scales: dict[str, float], integers: dict[str, int]) -> None:
    """Raise ``ValueError`` unless scales are positive and finite, the rest int8, and clamp_min at
    most clamp_max."""
    for name, scale in scales.items():
        if not (scale > 0 and math.isfinite(scale)):
            raise ValueError(f"{op}: {name} must be positive and finite, got {scale}")
    for name, value in integers.items():
        if isinstance(value, bool) or not -128 <= value <= 127:
            raise ValueError(f"{op}: {name} must be in -128..127, got {value}")
    if integers["clamp_min"] > integers["clamp_max"]:
        raise ValueError(
            f"{op}: clamp_min must not be above clamp_max, got {integers['clamp_min']} and "
            f"{integers['clamp_max']}"
        )
