"""qconv2d_int8: equal to the int64 reference bit for bit, for every rounding that it documents."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest
import torch
from support.conv_int8 import Int8Case, make

import mixed_gemm
from mixed_gemm.ops.conv_problem import MAX_CONV_INT8_K, Pair
from mixed_gemm.reference import conv as reference_conv


@pytest.mark.parametrize("clamp", [(-128, 127), (-5, 127), (0, 60), (3, 3), (-128, -128)])
def test_clamp_is_applied_to_the_rounded_output(clamp: Pair) -> None:
    tensors, options = make(Int8Case())
    free = mixed_gemm.qconv2d_int8(*tensors, **options)
    bounded = {"clamp_min": clamp[0], "clamp_max": clamp[1]}
    out = mixed_gemm.qconv2d_int8(*tensors, **options, **bounded)
    assert torch.equal(out, free.clamp(*clamp))
    assert torch.equal(out, reference_conv.qconv2d_int8(*tensors, **options, **bounded))


def test_output_is_the_nearest_integer_to_the_exact_one() -> None:
    # Rational arithmetic: what the formula means, apart from how it rounds.
    tensors, options = make(Int8Case(1, 4, 3, (4, 4)))
    images, weight, scale, bias = tensors
    sums = reference_conv.conv_sums(
        images, weight, options["input_zero_point"], padding=options["padding"]
    )
    out = mixed_gemm.qconv2d_int8(*tensors, **options)
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
    tensors, options = make(Int8Case())
    images, weight, scales, bias = tensors
    scales = scales.clone()
    scales[3] = scale
    out = mixed_gemm.qconv2d_int8(images, weight, scales, bias, **options)
    want = reference_conv.qconv2d_int8(images, weight, scales, bias, **options)
    assert torch.equal(out, want)


def test_weights_in_either_memory_format_and_any_strides() -> None:
    tensors, options = make(Int8Case(in_c=20))
    images, weight, scale, bias = tensors
    want = mixed_gemm.qconv2d_int8(*tensors, **options)
    wide = torch.stack((weight, weight), dim=-1)[..., 0]
    strided = torch.stack((scale, 7 * scale), dim=-1)[:, 0]
    for w in (weight.contiguous(memory_format=torch.channels_last), wide):
        assert torch.equal(mixed_gemm.qconv2d_int8(images, w, strided, bias, **options), want)
    nchw = images.contiguous()
    out = mixed_gemm.qconv2d_int8(nchw, weight, scale, bias, **options)
    assert torch.equal(out, want)
    assert out.is_contiguous()
    assert want.is_contiguous(memory_format=torch.channels_last)


def test_requantized_conv_is_near_the_float_one() -> None:
    # The seed's formula end to end: dequantize, convolve, quantize.
    tensors, options = make(Int8Case())
    images, weight, scale, bias = tensors
    real = options["input_scale"] * (images.double() - options["input_zero_point"])
    y = torch.nn.functional.conv2d(
        real, scale.double()[:, None, None, None] * weight.double(), bias.double(), padding=1
    )
    want = (y / options["output_scale"] + options["output_zero_point"]).clamp(-128, 127)
    out = mixed_gemm.qconv2d_int8(*tensors, **options)
    assert float((out.double() - want).abs().max()) <= 0.5 + 1e-4
