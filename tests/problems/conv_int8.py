"""Problems of qconv2d_int8; the oracle is exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import mixed_gemm
from mixed_gemm.ops.conv_problem import Pair
from mixed_gemm.reference import conv as reference_conv

from . import conv, verdict
from .covering import Row, Rules
from .gemm import VECTOR_PLACES
from .lattice import Sample, int8, integers
from .placing import place, place_unchanged, poison_output
from .rows import CONV_SIZES, Call, Op
from .values import Values


@dataclass(frozen=True)
class ConvInt8Case(conv.Geometry):
    input_zero_point: int = 0
    output_zero_point: int = -5
    clamp: Pair = (-128, 127)
    scale_each: bool = True
    bias: bool = False
    layout: str = "channels_last"
    weight_layout: str = "channels_last"
    vectors_place: str = "alone"
    sums: bool = False


FACTORS: dict[str, tuple[Any, ...]] = {
    **conv.SHAPES,
    "input_zero_point": (0, -128, 37, 127),
    "output_zero_point": (0, -5, 127),
    "clamp": ((-128, 127), (-100, 120), (0, 6)),
    "scale_each": (False, True),
    "bias": (False, True),
    "weight_layout": ("channels_last", "nchw", "odd_offset", "turned"),
    "vectors_place": VECTOR_PLACES,
    "sums": (False, True),
}
RULES: Rules = conv.SHAPE_RULES


def from_row(row: Row) -> ConvInt8Case:
    return ConvInt8Case(**conv.geometry_of(row))


NAMES = ("input", "weight", "weight_scale", "bias")  # of the tensors that the op takes


@dataclass
class ConvInt8Problem(verdict.Remembered):
    case: ConvInt8Case
    input: Tensor
    weight: Tensor
    weight_scale: Tensor
    bias: Tensor | None
    weight_sums: Tensor | None

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        case = self.case
        k = case.in_c * case.kernel[0] * case.kernel[1]
        named: dict[str, Any] = {
            "input_scale": 0.02,
            "input_zero_point": case.input_zero_point,
            "output_scale": 0.02 * 74 * k**0.5 / 60,  # most results lie inside the int8 range
            "output_zero_point": case.output_zero_point,
            "clamp_min": case.clamp[0],
            "clamp_max": case.clamp[1],
            **case.geometry(),
            "weight_sums": self.weight_sums,
        }
        return (self.input, self.weight, self.weight_scale, self.bias), named

    def run(self, config: str | None = None, **changes: Any) -> Tensor:
        """Into memory that held poison. ``changes``: other arguments, by name."""
        positional, named = self.arguments()
        case = self.case
        poison_output((case.images, case.out_c, *case.output_size()), self.input)
        arguments = {**dict(zip(NAMES, positional, strict=True)), **named, **changes}
        if config is None:
            return mixed_gemm.qconv2d_int8(**arguments)
        return torch.ops.mixed_gemm._qconv2d_int8_config(**arguments, config=config)

    def sums(self) -> Tensor:
        """The weight_sums of the weight as it is now."""
        return self.weight.double().sum((1, 2, 3)).int()

    def configs(self) -> list[str]:
        positional, named = self.arguments()
        return torch.ops.mixed_gemm._qconv2d_int8_configs(*positional, **named).split()

    def exact(self) -> Tensor:
        """The result that the op must give, for the tensors as they are when this is first
        asked."""
        positional, named = self.arguments()
        return self.once("exact", lambda: reference_conv.qconv2d_int8(*positional, **named))

    def verdict(self, out: Tensor, config: str | None = None) -> Tensor:
        return verdict.exact(out, self.exact())


def make(
    case: ConvInt8Case, device: str = "cpu", seed: int = 0, drawn_on: str = "cpu"
) -> ConvInt8Problem:
    values = Values(device, seed, drawn_on)
    images = values.integers(-128, 128, case.images, case.in_c, *case.size, dtype=torch.int8)
    shape = (case.out_c, case.in_c, *case.kernel)
    weight = values.integers(-128, 128, *shape, dtype=torch.int8)
    scales = case.out_c if case.scale_each else 1
    scale = (0.5 + values.uniform(scales)) * values.signs(scales) / 100  # negative ones are legal
    bias = values.normal(case.out_c) * 5 if case.bias else None
    problem = ConvInt8Problem(
        case,
        conv.lay_out(images, case.layout),
        conv.lay_out(weight, case.weight_layout),
        place(scale, case.vectors_place),
        None if bias is None else place(bias, case.vectors_place),
        None,
    )
    if case.sums:
        problem.weight_sums = place_unchanged(problem.sums(), case.vectors_place)
    return problem


cost = conv.products


def sample(
    images: int = 2,
    channels: int = 4,
    out_c: int = 3,
    scales: int = 3,
    sums: bool = False,
    **more: Any,
) -> Sample:
    weight = int8(out_c, channels, 3, 3)
    given = {
        "input": int8(images, channels, 5, 5),
        "weight": weight,
        "weight_scale": torch.ones(scales),
        "bias": integers(out_c),
        **({"weight_sums": mixed_gemm.ops.weight_sums(weight)} if sums else {}),
        "input_scale": 0.5,
        "input_zero_point": 1,
        "output_scale": 2.0,
        "output_zero_point": -1,
        **more,
    }
    return Sample("qconv2d_int8", given)


OPS = {
    "qconv2d_int8": Op(
        ConvInt8Case, FACTORS, make, cost, RULES, CONV_SIZES,
        typical=(
            ConvInt8Case(2, 17, 33, (9, 7), stride=(2, 1), input_zero_point=37, bias=True),
            ConvInt8Case(1, 64, 64, (14, 14), sums=True),
        ),
        from_row=from_row,
        forced=True,
    ),
}  # fmt: skip
CALLS = {
    "qconv2d_int8": Call(
        sample,
        {
            "channels": 6,
            "out_c": 8,
            "scales": 8,
            "sums": True,
            "clamp_min": -100,
            "clamp_max": 100,
            "stride": [1, 1],
            "padding": [1, 1],
            "dilation": [1, 1],
        },
        (ConvInt8Case(input_zero_point=17, bias=True),),
    ),
}


def _sharded(scales: int) -> Sample:
    return sample(4, 8, 6, scales, sums=True)


SHARDED = {
    "qconv2d_int8": lambda: _sharded(6),
    "qconv2d_int8, one scale": lambda: _sharded(1),
}
