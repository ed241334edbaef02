"""The one generator of problems for the convolutions; the twin of cases.py."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

import mixed_gemm
from mixed_gemm import reference, reference_conv
from mixed_gemm.conv_scheme import Pair, num_blocks
from mixed_gemm.scheme import ACTIVATIONS

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
CHANNELS_IN = (1, 2, 3, 7, 8, 9, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 96, 100, 128, 129, 513)
CHANNELS_OUT = (1, 2, 7, 8, 15, 17, 31, 33, 63, 64, 65, 127, 129, 200, 520)
KERNELS: tuple[Pair, ...] = ((1, 1), (2, 2), (3, 3), (1, 7), (5, 2), (4, 4), (7, 7), (6, 1))


@dataclass(frozen=True)
class ConvCase:
    images: int = 2
    in_c: int = 40
    out_c: int = 24
    size: Pair = (7, 6)
    kernel: Pair = (3, 3)
    stride: Pair = (1, 1)
    padding: Pair = (1, 1)
    dilation: Pair = (1, 1)
    dtype: torch.dtype = torch.float16
    bits: int = 4
    block_size: int = -1
    offsets: bool = False
    bias: bool = False
    activation: str = "identity"
    channels_last: bool = True

    def __str__(self) -> str:
        def pair(x: Pair) -> str:
            return f"{x[0]}x{x[1]}"

        dtype = str(self.dtype).removeprefix("torch.")
        extras = "".join(f"-{x}" for x in ("offsets", "bias", "channels_last") if getattr(self, x))
        return (
            f"{self.images}x{self.in_c}to{self.out_c}@{pair(self.size)}-k{pair(self.kernel)}"
            f"s{pair(self.stride)}p{pair(self.padding)}d{pair(self.dilation)}-{dtype}"
            f"-int{self.bits}-b{self.block_size}{extras}-{self.activation}"
        )

    def geometry(self) -> dict[str, Pair]:
        return {"stride": self.stride, "padding": self.padding, "dilation": self.dilation}

    def output_size(self) -> Pair:
        """By counting: the places where the dilated kernel fits into the padded image."""
        sizes = []
        for size, k, s, p, d in zip(
            self.size, self.kernel, self.stride, self.padding, self.dilation, strict=True
        ):
            last = size + 2 * p - (d * (k - 1) + 1)
            sizes.append(len(range(0, last + 1, s)))
        return sizes[0], sizes[1]


@dataclass
class ConvProblem:
    """Tensors of a case: what the reference takes, and what the op takes."""

    case: ConvCase
    input: Tensor
    q: Tensor
    scales: Tensor
    offsets: Tensor | None
    bias: Tensor | None
    packed: Tensor

    def options(self) -> dict[str, Any]:
        case = self.case
        return {
            "block_size": case.block_size,
            "activation": case.activation,
            **case.geometry(),
        }

    def extras(self) -> tuple[Tensor | None, ...]:
        return self.scales, self.offsets, self.bias

    def run(self, input: Tensor | None = None) -> Tensor:
        return mixed_gemm.qconv2d(
            self.input if input is None else input,
            self.packed,
            self.scales,
            self.offsets,
            self.bias,
            bits=self.case.bits,
            kernel_size=self.case.kernel,
            **self.options(),
        )

    def expected(self, input: Tensor | None = None) -> Tensor:
        input = self.input if input is None else input
        return reference_conv.qconv2d(
            input, self.q, self.scales, self.offsets, self.bias, **self.options()
        )

    def ratio(self, out: Tensor) -> float:
        """max |out - exact| / bound; see reference_conv.error_bound."""
        bound = reference_conv.error_bound(
            self.input, self.q, self.scales, self.offsets, self.bias, **self.options()
        )
        assert out.dtype == self.case.dtype
        return reference.error_ratio(out, self.expected(), bound)


def make(case: ConvCase, device: str = "cpu", seed: int = 0) -> ConvProblem:
    """Random tensors: the same values on every device."""
    g = torch.Generator().manual_seed(seed)
    low, high = -(2 ** (case.bits - 1)), 2 ** (case.bits - 1)
    blocks = (num_blocks(case.in_c, case.block_size), case.out_c)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g)

    q = torch.randint(
        low, high, (case.out_c, case.in_c, *case.kernel), generator=g, dtype=torch.int8
    )
    sign = torch.randint(0, 2, blocks, generator=g) * 2 - 1  # negative scales are legal
    scales = (0.5 + torch.rand(blocks, generator=g)) * sign * 0.5 / high
    offsets = normal(*blocks) * 0.1 if case.offsets else None
    images = normal(case.images, case.in_c, *case.size)
    if case.channels_last:
        images = images.contiguous(memory_format=torch.channels_last)

    def place(x: Tensor | None) -> Any:
        return None if x is None else x.to(case.dtype).to(device)

    q = q.to(device)
    return ConvProblem(
        case,
        place(images),
        q,
        place(scales),
        place(offsets),
        place(normal(case.out_c)) if case.bias else None,
        mixed_gemm.pack_conv_weights(q, case.bits),
    )


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
