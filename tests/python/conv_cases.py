"""Problems of qconv2d (problems.conv), and lists of cases that turn on one thing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from problems.conv import DTYPES, ConvCase, ConvProblem, make

from mixed_gemm.conv_scheme import Pair
from mixed_gemm.scheme import ACTIVATIONS

__all__ = ["DTYPES", "ConvCase", "ConvProblem", "make"]

CHANNELS_IN = (1, 2, 3, 7, 8, 9, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 96, 100, 128, 129, 513)
CHANNELS_OUT = (1, 2, 7, 8, 15, 17, 31, 33, 63, 64, 65, 127, 129, 200, 520)
KERNELS: tuple[Pair, ...] = ((1, 1), (2, 2), (3, 3), (1, 7), (5, 2), (4, 4), (7, 7), (6, 1))


def block_sizes(in_c: int) -> list[int]:
    """-1, and multiples of 16 that do and that do not divide ``in_c`` (48: no power of two)."""
    return [-1, *(b for b in (16, 32, 48, 64, 128, 256) if b <= in_c)]


def _fill(case: ConvCase, i: int) -> ConvCase:
    """Rotates what a list of shapes leaves open."""
    sizes = block_sizes(case.in_c)
    return replace(
        case,
        dtype=DTYPES[i % 3],
        bits=(4, 8)[i // 2 % 2],
        block_size=sizes[i % len(sizes)],
        offsets=i % 2 == 1,
        bias=i % 3 != 1,
        channels_last=i // 3 % 2 == 0,
        activation=ACTIVATIONS[i % len(ACTIVATIONS)] if i % 4 == 0 else "identity",
    )


def channel_cases() -> Iterator[ConvCase]:
    """Ci around the rule of channels_per_tap, Co around the padding, with every block size."""
    cases = [
        ConvCase(in_c=in_c, kernel=kernel, block_size=block)
        for in_c in CHANNELS_IN
        for kernel in ((3, 3), (1, 1))
        for block in block_sizes(in_c)
    ]
    for i, case in enumerate(cases):
        yield replace(_fill(case, i), block_size=case.block_size)
    for i, out_c in enumerate(CHANNELS_OUT):
        yield _fill(ConvCase(in_c=CHANNELS_IN[(3 * i) % 20], out_c=out_c, size=(4, 5)), i)


def geometry_cases() -> Iterator[ConvCase]:
    """Kernels x strides x paddings (up to more than the kernel) x dilations."""
    steps: tuple[Pair, ...] = ((1, 1), (2, 2), (1, 3))
    dilations: tuple[Pair, ...] = ((1, 1), (2, 1), (3, 2))
    for i, (kernel, stride, dilation) in enumerate(itertools.product(KERNELS, steps, dilations)):
        height, width = (d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
        paddings: tuple[Pair, ...] = ((0, 0), (height // 2, 1), (height, width + 1))
        padding = paddings[i % 3]
        size = (height + i % 4, width + i % 5)
        case = ConvCase(1 + i % 3, CHANNELS_IN[i % 16], 19, size, kernel, stride, padding, dilation)
        yield _fill(case, i)


def corner_cases() -> Iterator[ConvCase]:
    """Single pixels, no images, many images, images smaller than the kernel, one channel."""
    corners = (
        ConvCase(1, 1, 1, (1, 1), (1, 1), padding=(0, 0)),
        ConvCase(1, 64, 64, (1, 1), (1, 1), padding=(0, 0)),
        ConvCase(1, 64, 64, (1, 1), (3, 3)),
        ConvCase(0, 16, 24, (5, 5)),
        ConvCase(32, 20, 33, (3, 4)),
        ConvCase(1, 5, 9, (2, 2), (7, 7), padding=(6, 6)),
        ConvCase(2, 3, 70, (17, 19), (7, 7), (2, 2), (3, 3)),  # the first layer of a ResNet
        ConvCase(2, 64, 40, (9, 9), (1, 1), (2, 2), (0, 0)),  # and its shortcut
        ConvCase(1, 130, 40, (1, 300), (1, 3), (1, 1), (0, 1)),
        ConvCase(1, 130, 40, (300, 1), (3, 1), (1, 1), (1, 0)),
        ConvCase(2, 33, 20, (4, 4), (1, 1), (1, 1), (2, 1)),  # padding around a 1x1
        ConvCase(1, 600, 16, (12, 20), (3, 3)),  # more rows than one block gathers
    )
    for i, case in enumerate(corners):
        for j in range(3):
            yield _fill(case, 3 * i + j + (i % 2) * 3)


def epilogue_cases(base: ConvCase) -> Iterator[ConvCase]:
    """Every dtype x width x offsets x bias x memory format, and every activation."""
    flags = (False, True)
    for dtype, bits, offsets, bias, last in itertools.product(DTYPES, (4, 8), flags, flags, flags):
        yield replace(base, dtype=dtype, bits=bits, offsets=offsets, bias=bias, channels_last=last)
    for dtype, activation in itertools.product(DTYPES, ACTIVATIONS):
        yield replace(base, dtype=dtype, activation=activation, bias=True)
