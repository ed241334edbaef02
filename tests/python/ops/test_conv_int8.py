"""qconv2d_int8: equal to the int64 reference bit for bit, for every rounding that it documents."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from problems.conv_int8 import ConvInt8Case, make
from problems.placing import place

import mixed_gemm
from mixed_gemm.ops.conv_problem import MAX_CONV_INT8_K, Pair
from mixed_gemm.reference import conv as reference_conv

CASE = ConvInt8Case(in_c=19, out_c=21, input_zero_point=17, bias=True)


@pytest.mark.parametrize("clamp", [(-128, 127), (-5, 127), (0, 60), (3, 3), (-128, -128)])
def test_clamp_is_applied_to_the_rounded_output(clamp: Pair) -> None:
    free, bounded = make(CASE), make(replace(CASE, clamp=clamp))
    out = bounded.run()
    assert torch.equal(out, free.run().clamp(*clamp))
    assert torch.equal(out, bounded.exact())


def test_output_is_the_nearest_integer_to_the_exact_one() -> None:
    # Rational arithmetic: what the formula means, apart from how it rounds.
    problem = make(replace(CASE, images=1, in_c=4, out_c=3, size=(4, 4)))
    (images, weight, scale, bias), options = problem.arguments()
    sums = reference_conv.conv_sums(
        images, weight, options["input_zero_point"], padding=options["padding"]
    )
    out = problem.run()
    s_in, s_out = Fraction(options["input_scale"]), Fraction(options["output_scale"])
    for index in itertools.product(*(range(x) for x in out.shape)):
        o = index[1]
        real = s_in * Fraction(float(scale[o])) * int(sums[index]) + Fraction(float(bias[o]))
        exact = real / s_out + options["output_zero_point"]
        clamped = min(max(exact, Fraction(-128)), Fraction(127))
        # Three fp32 roundings of numbers below 2^8 (where it is not clamped).
        assert abs(int(out[index]) - clamped) <= Fraction(1, 2) + Fraction(1, 2**14)


@pytest.mark.parametrize("zero_point", [-128, 0, 127])
def test_padding_contributes_nothing(zero_point: int) -> None:
    # An image that is all zero point is real 0, with the padding around it too.
    image = torch.full((1, 5, 6, 6), zero_point, dtype=torch.int8)
    weight = torch.randint(-128, 128, (7, 5, 3, 3), dtype=torch.int8)
    out = mixed_gemm.qconv2d_int8(
        image,
        weight,
        torch.ones(1),
        input_scale=1.0,
        input_zero_point=zero_point,
        output_scale=1.0,
        output_zero_point=11,
        padding=(2, 5),
    )
    assert (out == 11).all()


def test_ties_round_to_even() -> None:
    # Sums -6..6, halved: x.5 exactly.
    image = torch.arange(-6, 7, dtype=torch.int8).view(1, 1, 1, 13)
    out = mixed_gemm.qconv2d_int8(
        image,
        torch.ones(1, 1, 1, 1, dtype=torch.int8),
        torch.ones(1),
        input_scale=0.5,
        input_zero_point=0,
        output_scale=1.0,
        output_zero_point=0,
    )
    want = [-3, -2, -2, -2, -1, 0, 0, 0, 1, 2, 2, 2, 3]
    assert out.flatten().tolist() == want


@pytest.mark.parametrize(("value", "zero_point"), [(-128, 127), (127, -128)])
def test_the_largest_sums_do_not_wrap(value: int, zero_point: int) -> None:
    # K = 65793 products of +-255 and -128: 2147483520, the largest that int32 holds.
    image = torch.full((1, MAX_CONV_INT8_K, 1, 1), value, dtype=torch.int8)
    weight = torch.full((1, MAX_CONV_INT8_K, 1, 1), -128, dtype=torch.int8)
    out = mixed_gemm.qconv2d_int8(
        image,
        weight,
        torch.full((1,), 2.0**-25),
        input_scale=1.0,
        input_zero_point=zero_point,
        output_scale=1.0,
        output_zero_point=0,
    )
    assert out.item() == (64 if value < 0 else -64)  # 63.99999...


@pytest.mark.parametrize("scale", [math.nan, math.inf])
def test_a_scale_that_is_not_finite_gives_a_defined_output(scale: float) -> None:
    problem = make(CASE)
    problem.weight_scale[3] = scale
    assert torch.equal(problem.run(), problem.exact())


def test_weights_in_either_memory_format_and_any_strides() -> None:
    problem = make(replace(CASE, in_c=20))
    want, weight = problem.run(), problem.weight
    wide = torch.stack((weight, weight), dim=-1)[..., 0]
    strided = place(problem.weight_scale, "every_second_column")
    for w in (weight.contiguous(memory_format=torch.channels_last), weight.contiguous(), wide):
        assert torch.equal(problem.run(weight=w, weight_scale=strided), want)
    out = problem.run(input=problem.input.contiguous())
    assert torch.equal(out, want)
    assert out.is_contiguous()
    assert want.is_contiguous(memory_format=torch.channels_last)


def test_requantized_conv_is_near_the_float_one() -> None:
    # The formula end to end: dequantize, convolve, quantize.
    problem = make(CASE)
    (images, weight, scale, bias), options = problem.arguments()
    real = options["input_scale"] * (images.double() - options["input_zero_point"])
    y = torch.nn.functional.conv2d(
        real, scale.double()[:, None, None, None] * weight.double(), bias.double(), padding=1
    )
    want = (y / options["output_scale"] + options["output_zero_point"]).clamp(-128, 127)
    out = problem.run()
    assert float((out.double() - want).abs().max()) <= 0.5 + 1e-4
