"""Problems of qconv2d."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import mixed_gemm
from mixed_gemm import reference
from mixed_gemm.ops.conv_problem import Pair, num_blocks
from mixed_gemm.ops.problem import ACTIVATIONS, num_groups
from mixed_gemm.reference import conv as reference_conv

from . import verdict
from .covering import Row, Rules
from .gemm import DTYPES, VECTOR_PLACES
from .lattice import FLOAT, Sample, integers, powers
from .placing import PLACES, place, poison_output, poisoned
from .rows import CONV_SIZES, HALF, Call, Op
from .values import Values

LAYOUTS = (
    "channels_last",
    "nchw",
    "channels_of_more",
    "window",
    "odd_offset",
    "turned",
    "expanded",
)


@dataclass(frozen=True)
class Geometry:
    """The geometry of any convolution. ``size`` is that of the images; height comes before
    width."""

    images: int = 2
    in_c: int = 40
    out_c: int = 24
    size: Pair = (7, 6)
    kernel: Pair = (3, 3)
    stride: Pair = (1, 1)
    padding: Pair = (1, 1)
    dilation: Pair = (1, 1)

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


@dataclass(frozen=True)
class ConvCase(Geometry):
    """``layout`` as in LAYOUTS; None: what ``channels_last`` says."""

    dtype: torch.dtype = torch.float16
    bits: int = 4
    block_size: int = -1
    offsets: bool = False
    bias: bool = False
    activation: str = "identity"
    channels_last: bool = True
    layout: str | None = None
    b_place: str = "alone"
    scales_place: str = "alone"
    vectors_place: str = "alone"

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


# Values that both convolutions are tried with. ``extra``: pixels of the padded image beyond the
# kernel.
SHAPES: dict[str, tuple[Any, ...]] = {
    "images": (0, 1, 2, 5),
    "in_c": (1, 2, 3, 7, 8, 9, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 96, 100, 128, 129, 260),
    "out_c": (1, 2, 7, 8, 15, 17, 31, 33, 63, 64, 65, 127, 129, 200, 520),
    "kernel": ((1, 1), (2, 2), (3, 3), (1, 7), (5, 2), (6, 1), (7, 7)),
    "stride": ((1, 1), (2, 2), (1, 3), (4, 1)),
    "padding": ("none", "one", "half", "whole", "uneven"),
    "dilation": ((1, 1), (2, 2), (3, 1), (1, 2)),
    "extra": ((0, 0), (1, 4), (5, 2), (6, 7), (0, 12)),
    "layout": LAYOUTS,
}
SHAPE_RULES: Rules = {
    ("in_c", "kernel"): lambda c, kernel: c * kernel[0] * kernel[1] <= 6400,
    ("in_c", "out_c"): lambda c, out: c * out <= 140_000,
}
FACTORS: dict[str, tuple[Any, ...]] = {
    **SHAPES,
    "dtype": DTYPES,
    "bits": (4, 8),
    "scheme": tuple(itertools.product((-1, 16, 32, 48, 64, 128, 256), (False, True))),
    "bias": (False, True),
    "activation": ACTIVATIONS,
    "b_place": ("alone", "guarded", "odd_offset", "in_wide_rows", "transposed"),
    "scales_place": PLACES,
    "vectors_place": VECTOR_PLACES,
}
RULES: Rules = {
    **SHAPE_RULES,
    ("in_c", "scheme"): lambda c, scheme: scheme[0] <= c,
    ("kernel", "scheme"): lambda kernel, scheme: scheme[0] * kernel[0] * kernel[1] <= 6400,
}


def geometry_of(row: Row) -> Row:
    """Fields of a case from a row of SHAPES: the padding and the size of the image as numbers."""
    row = dict(row)
    extra, kind = row.pop("extra"), row.pop("padding")
    spans = [d * (k - 1) + 1 for k, d in zip(row["kernel"], row["dilation"], strict=True)]
    height, width = spans
    row["padding"] = {
        "none": (0, 0),
        "one": (1, 1),
        "half": (height // 2, width // 2),
        "whole": (height, width + 1),  # patches that lie outside altogether
        "uneven": (0, 2),
    }[kind]
    row["size"] = tuple(
        max(1, span + more - 2 * p)
        for span, more, p in zip(spans, extra, row["padding"], strict=True)
    )
    return row


def from_row(row: Row) -> ConvCase:
    fields = geometry_of(row)
    block_size, offsets = fields.pop("scheme")
    last = row["layout"] != "nchw"
    return ConvCase(**fields, block_size=block_size, offsets=offsets, channels_last=last)


def lay_out(x: Tensor, layout: str) -> Tensor:
    """The images ``x`` [N, C, H, W] with strides as one of LAYOUTS has them, poison between."""
    n, c, h, w = x.shape
    if layout == "channels_last":
        return x.contiguous(memory_format=torch.channels_last)
    if layout == "nchw":
        return x.contiguous()
    if layout == "channels_of_more":
        wide = poisoned((n, h, w, c + 8), x).permute(0, 3, 1, 2)
        wide[:, :c] = x
        return wide[:, :c]
    if layout == "window":
        big = poisoned((2 * n, c, h + 2, w + 3), x)
        view = big[::2, :, 1 : 1 + h, 2 : 2 + w]
        return view.copy_(x)
    if layout == "odd_offset":
        rows = place(x.permute(0, 2, 3, 1).contiguous(), "odd_offset")
        return rows.permute(0, 3, 1, 2)
    if layout == "turned":
        return x.transpose(2, 3).contiguous().transpose(2, 3)
    if layout == "expanded":
        return x[:1].expand(x.shape) if n else x
    raise ValueError(f"layout must be one of {LAYOUTS}, got {layout!r}")


def other_layouts(x: Tensor) -> dict[str, Tensor]:
    """``x`` in every layout that keeps its values, but for channels_last."""
    return {name: lay_out(x, name) for name in LAYOUTS[1:] if name != "expanded"}


@dataclass
class ConvProblem(verdict.Remembered):
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

    def arguments(self, input: Tensor | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        positional = (self.input if input is None else input, self.packed, *self.extras())
        named = {"bits": self.case.bits, "kernel_size": self.case.kernel, **self.options()}
        return positional, named

    def run(self, input: Tensor | None = None, config: str | None = None) -> Tensor:
        """The op's own choice, or a configuration by name, into memory that held NaN."""
        positional, named = self.arguments(input)
        case = self.case
        poison_output((positional[0].shape[0], case.out_c, *case.output_size()), self.input)
        if config is None:
            return mixed_gemm.qconv2d(*positional, **named)
        return torch.ops.mixed_gemm._qconv2d_config(*positional, **named, config=config)

    def configs(self) -> list[str]:
        positional, named = self.arguments(None)
        return torch.ops.mixed_gemm._qconv2d_configs(*positional, **named).split()

    def oracle(self, input: Tensor | None = None) -> tuple[Tensor, Tensor]:
        input = self.input if input is None else input
        return reference_conv.oracle(
            input, self.q, self.scales, self.offsets, self.bias, **self.options()
        )

    def expected(self, input: Tensor | None = None) -> Tensor:
        return self.oracle(input)[0]

    def verdict(self, out: Tensor, config: str | None = None) -> Tensor:
        assert out.dtype == self.case.dtype
        return verdict.ratio(out, *self.once("oracle", self.oracle))

    def ratio(self, out: Tensor) -> float:
        """max |out - exact| / bound; see reference_conv.error_bound."""
        assert out.dtype == self.case.dtype
        return reference.error_ratio(out, *self.oracle())


def make(case: ConvCase, device: str = "cpu", seed: int = 0, drawn_on: str = "cpu") -> ConvProblem:
    """Random tensors: the same values on every device if ``drawn_on`` is the same."""
    values = Values(device, seed, drawn_on)
    high = 2 ** (case.bits - 1)
    blocks = (num_blocks(case.in_c, case.block_size), case.out_c)
    q = values.integers(-high, high, case.out_c, case.in_c, *case.kernel, dtype=torch.int8)
    # Negative scales are legal.
    scales = (0.5 + values.uniform(*blocks)) * values.signs(*blocks) * 0.5 / high
    offsets = values.normal(*blocks) * 0.1 if case.offsets else None
    images = values.normal(case.images, case.in_c, *case.size).to(case.dtype)
    layout = case.layout or ("channels_last" if case.channels_last else "nchw")

    def put(x: Tensor | None, where: str) -> Any:
        return None if x is None else place(x.to(case.dtype), where)

    return ConvProblem(
        case,
        lay_out(images, layout),
        q,
        put(scales, case.scales_place),
        put(offsets, case.scales_place),
        put(values.normal(case.out_c) if case.bias else None, case.vectors_place),
        place(mixed_gemm.pack_conv_weights(q, case.bits), case.b_place),
    )


def products(case: Any) -> int:
    height, width = case.output_size()
    k = case.in_c * case.kernel[0] * case.kernel[1]
    return max(case.images, 1) * height * width * case.out_c * k


cost = products


def sample(
    size: tuple[int, int] = (3, 3),
    kernel: tuple[int, int] = (3, 3),
    channels: int = 20,
    out_c: int = 3,
    dtype: torch.dtype = FLOAT,
    offsets: bool = True,
    bias: bool = True,
    activation: str = "identity",
    channels_last: bool = False,
    images: int = 1,
    **geometry: Any,
) -> Sample:
    block = 16 if channels > 16 else -1
    blocks = (num_groups(channels, block), out_c)
    q = integers(out_c, channels, *kernel, dtype=torch.int8)
    scales = powers(*blocks, dtype=dtype)
    offset = integers(*blocks, dtype=dtype) / 16 if offsets else None
    options: dict[str, Any] = {"block_size": block, "activation": activation, **geometry}

    def exact(input: Tensor, bias: Tensor | None = None) -> Tensor:
        return reference_conv.qconv2d(input, q, scales, offset, bias, **options)

    input = integers(images, channels, *size, low=-1, high=1, dtype=dtype)
    if channels_last:
        input = input.contiguous(memory_format=torch.channels_last)
    given = {
        "input": input,
        "weight_packed": mixed_gemm.pack_conv_weights(q, 4),
        "scales": scales,
        "offsets": offset,
        "bias": integers(out_c, dtype=dtype) if bias else None,
        "bits": 4,
        "block_size": block,
        "kernel_size": kernel,
        **geometry,
        "activation": activation,
    }
    return Sample("qconv2d", given, ("input", "bias") if bias else ("input",), exact)


OPS = {
    "qconv2d": Op(
        ConvCase, FACTORS, make, cost, RULES, CONV_SIZES,
        typical=(
            ConvCase(2, 64, 48, (8, 6), block_size=32, offsets=True),
            ConvCase(1, 128, 128, (14, 14), bias=True, activation="relu"),
            ConvCase(2, 64, 64, (8, 8), (1, 1), padding=(0, 0), block_size=32),
        ),
        from_row=from_row,
        forced=True,
    ),
}  # fmt: skip
CALLS = {
    "qconv2d": Call(
        sample,
        {
            "size": (5, 6),
            "channels": 40,
            "out_c": 24,
            "images": 2,
            "dtype": HALF,
            "activation": "relu",
            "stride": [1, 2],
            "padding": [1, 0],
            "dilation": [1, 1],
        },
        (ConvCase(block_size=16, offsets=True, bias=True, activation="relu"),),
    ),
}
TRAINED = {
    "conv": sample,
    "conv 1x1": lambda: sample((2, 2), (1, 1), images=2, offsets=False),
    "conv strided": lambda: sample(
        (4, 5), (3, 2), 3, images=2, stride=(2, 1), padding=(1, 2), dilation=(1, 2)
    ),
    "conv channels-last": lambda: sample(channels_last=True, padding=(1, 1), bias=False),
    "conv relu": lambda: sample(activation="relu"),
    "conv silu": lambda: sample(activation="silu", channels=7),
}


def _sharded(stride: int) -> Sample:
    return sample((6, 7), (3, 2), out_c=128, images=4, stride=stride)


SHARDED = {
    "qconv2d": lambda: _sharded(1),
    "qconv2d, stride 2": lambda: _sharded(2),
}
