"""The convolutions on CUDA: every kernel and split against float64 (int64 for int8)."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
import torch
from problems import registry
from problems.conv import ConvCase, other_layouts
from problems.conv_int8 import ConvInt8Case
from problems.placing import odd_places
from support.settings import without_tf32

import mixed_gemm
from mixed_gemm import reference

pytestmark = pytest.mark.gpu

make = functools.partial(registry.make, device="cuda")

# Sizes beyond those of the arrays of test_gpu_problems.py, and what a network has.
CONVS = (
    ConvCase(1, 64, 64, (14, 14)),
    ConvCase(2, 128, 136, (9, 7), stride=(2, 2), block_size=64),
    ConvCase(1, 3, 24, (30, 31), (7, 7), (2, 2), (3, 3), bias=True, activation="relu"),
    ConvCase(3, 17, 5, (8, 8), (3, 1), padding=(1, 0), block_size=16, offsets=True),
    ConvCase(1, 1, 1, (12, 5), (5, 5), padding=(6, 5)),
    ConvCase(1, 513, 520, (5, 5), (1, 3), padding=(0, 2), block_size=128, bias=True),
    ConvCase(4, 96, 100, (7, 7), (2, 2), padding=(0, 0), block_size=32, offsets=True, bias=True),
    ConvCase(32, 32, 8, (6, 6), padding=(3, 3), dilation=(2, 3), block_size=16, activation="relu6"),
    ConvCase(1, 256, 256, (14, 14), block_size=128, offsets=True, channels_last=False),
    ConvCase(2, 65, 72, (6, 9), stride=(3, 1), block_size=48, channels_last=False),
    ConvCase(5, 8, 16, (4, 4), (4, 4), padding=(0, 0), offsets=True),
    ConvCase(1, 192, 128, (10, 10), block_size=64, offsets=True, activation="relu"),
    ConvCase(1, 24, 33, (16, 16), (6, 2), (2, 3), (2, 1), (1, 2), bias=True),
    ConvCase(2, 100, 64, (9, 9), (1, 1), (2, 2), (0, 0), block_size=96),  # it skips pixels
)
POINTWISE = ConvCase(kernel=(1, 1), padding=(0, 0))
POINTWISES = (
    replace(POINTWISE, images=2, in_c=64, out_c=64, size=(8, 8), block_size=32),
    replace(
        POINTWISE,
        images=1,
        in_c=513,
        out_c=72,
        size=(7, 7),
        block_size=128,
        offsets=True,
        bias=True,
        channels_last=False,
    ),
    replace(POINTWISE, images=1, in_c=256, out_c=1000, size=(1, 1), block_size=64),
    replace(POINTWISE, images=32, in_c=128, out_c=512, size=(28, 28), block_size=128),
)


def memory_format(case: ConvCase) -> torch.memory_format:
    return torch.channels_last if case.channels_last else torch.contiguous_format


@pytest.mark.parametrize("bits", (4, 8))
@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16), ids=str)
@pytest.mark.parametrize("case", CONVS, ids=str)
def test_every_kernel_and_split(record, case, dtype, bits):
    problem = make(replace(case, dtype=dtype, bits=bits))
    exact, bound = problem.oracle()
    configs = problem.configs()
    assert sum(name.startswith("implicit") for name in configs) > 3
    for config in [None, *configs]:
        out = problem.run(config=config)
        assert out.shape == exact.shape and out.dtype == dtype
        assert out.is_contiguous(memory_format=memory_format(case))
        record(f"qconv2d-{config}", reference.error_ratio(out, exact, bound))


@pytest.mark.parametrize("case", CONVS[::3], ids=str)
def test_float32(record, case):
    problem = make(replace(case, dtype=torch.float32))
    with without_tf32():
        record("qconv2d-float32", problem.ratio(problem.run()))


@pytest.mark.parametrize("bits", (4, 8))
@pytest.mark.parametrize("case", POINTWISES, ids=str)
def test_pointwise_is_the_gemm(record, case, bits):
    problem = make(replace(case, bits=bits))
    record("qconv2d-pointwise", problem.ratio(problem.run()))


def test_integers_are_exact():
    """Sums of small integers are exact in fp32, so every kernel gives the exact result rounded once
    and all agree bit by bit."""
    problem = make(ConvCase(2, 80, 40, (9, 9), block_size=16, offsets=True))
    problem.input.copy_(torch.randint(-2, 3, problem.input.shape))
    problem.scales.fill_(2.0**-6)
    problem.offsets.copy_(torch.randint(-4, 5, problem.offsets.shape) / 64)
    exact = problem.expected().to(problem.case.dtype)
    for config in problem.configs():
        assert torch.equal(problem.run(config=config), exact), config


def test_nothing_to_do_and_infinity_outside():
    problem = make(ConvCase(2, 64, 48, (8, 6)))
    assert problem.run(problem.input[:0]).shape == (0, 48, 8, 6)
    x = problem.input.clone(memory_format=torch.preserve_format)
    x[0, 0, 0, 0] = float("inf")
    for config in problem.configs():
        out, before = problem.run(x, config), problem.run(config=config)
        # Not asked of the library's convolution: torch 2.11 on an H200 gave 0 for sums of -inf.
        if config != "dequantize_conv":
            assert not out[0, :, :2, :2].isfinite().any(), config
        reached = torch.zeros_like(out, dtype=torch.bool)
        reached[0, :, :2, :2] = True
        assert torch.equal(out[~reached], before[~reached]), config


INT8 = (
    ConvInt8Case(1, 64, 64, (14, 14)),
    ConvInt8Case(2, 17, 33, (9, 7), (3, 2), (2, 1), (2, 1)),
    ConvInt8Case(1, 3, 24, (30, 31), (7, 7), (2, 2), (3, 3), bias=True),
    ConvInt8Case(3, 128, 136, (8, 8), (1, 1), padding=(0, 0), bias=True),
    ConvInt8Case(1, 513, 520, (5, 5), (1, 3), padding=(0, 3), layout="nchw"),
    ConvInt8Case(32, 32, 8, (6, 6), padding=(3, 3), dilation=(2, 3)),
    ConvInt8Case(2, 256, 256, (14, 14), stride=(2, 2), bias=True),
    ConvInt8Case(1, 1, 1, (12, 5), (5, 5), padding=(6, 5)),
)


@pytest.mark.parametrize("zero_point", (0, -128, 37))
@pytest.mark.parametrize("case", INT8, ids=repr)
def test_int8_is_exact(case, zero_point):
    problem = make(replace(case, input_zero_point=zero_point, clamp=(-100, 120)))
    exact = problem.exact()
    assert exact.unique().numel() > 20  # not all of it is clamped
    configs = problem.configs()
    assert len(configs) >= 3
    sums = problem.sums()
    assert torch.equal(mixed_gemm.ops.weight_sums(problem.weight), sums)
    for config in [None, *configs]:
        assert torch.equal(problem.run(config=config), exact), config
        assert torch.equal(problem.run(config=config, weight_sums=sums), exact), config
    for name, view in odd_places(sums).items():
        assert torch.equal(problem.run(weight_sums=view), exact), name
    for name, view in other_layouts(problem.input).items():
        assert torch.equal(problem.run(input=view), exact), name


def test_int8_adds_the_sums_that_are_given():
    problem = make(ConvInt8Case(1, 64, 300, (6, 6), input_zero_point=-3))
    shifted = problem.run(weight_sums=problem.sums() + 10_000_000)
    positive = (problem.weight_scale > 0).view(-1, 1, 1).expand_as(shifted)
    assert torch.equal(shifted, torch.where(positive, 127, -128).to(torch.int8))


def test_unknown_and_impossible_configs():
    problem = make(ConvCase(1, 64, 64, (6, 6), bias=True))
    with pytest.raises(RuntimeError, match="unknown config multistage_m64n128s4"):
        problem.run(config="multistage_m64n128s4")
    with pytest.raises(RuntimeError, match="would round before it adds the bias"):
        problem.run(config="dequantize_conv")


def test_module_follows_its_input():
    float_conv = torch.nn.Conv2d(64, 48, 3, padding=1).cuda().half()
    module = mixed_gemm.Conv2d.from_float(float_conv, bits=8, block_size=32)
    x = torch.randn(2, 64, 10, 10, device="cuda", dtype=torch.float16)
    assert (module(x) - float_conv(x)).abs().mean() < 0.01
