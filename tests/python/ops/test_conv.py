"""qconv2d on the CPU against float64, under the bound of reference_conv.error_bound: ratio > 1
fails. One-hot images and the integer lattice are exact and need no bound.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from problems.conv import DTYPES, ConvCase, make
from torch import Tensor

import mixed_gemm
from mixed_gemm import reference
from mixed_gemm.ops.conv_problem import channels_per_tap, is_channels_last, num_blocks
from mixed_gemm.reference import conv as reference_conv


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("in_c", [5, 40, 100])
@pytest.mark.parametrize("offsets", [False, True])
def test_conv_one_hot_images_read_back_every_weight(
    offsets: bool, in_c: int, dtype: torch.dtype, bits: int
) -> None:
    # One pixel of one channel is 1, so an output is a single weight; q, scale and offset are chosen
    # so that it is exact. Image i has its channel i lit in the middle of a 3x3 image, and with a
    # padding of 1 each of the nine outputs sees it under another tap.
    out_c, block = 24, 16 if in_c > 16 else -1
    low = -(2 ** (bits - 1))
    q = torch.randint(low, -low, (out_c, in_c, 3, 3), dtype=torch.int8)
    blocks = (num_blocks(in_c, block), out_c)
    scales = (0.5 * 2.0 ** torch.randint(-3, 3, blocks)).to(dtype)
    shifts = (torch.randint(-4, 4, blocks) * scales).to(dtype) if offsets else None
    expected = reference_conv.dequantize_filter(q, scales, shifts, block_size=block)
    assert torch.equal(expected.to(dtype).double(), expected), "the data must be exact"
    images = torch.zeros(in_c, in_c, 3, 3, dtype=dtype)
    images[range(in_c), range(in_c), 1, 1] = 1
    packed = mixed_gemm.pack_conv_weights(q, bits)
    out = mixed_gemm.qconv2d(
        images, packed, scales, shifts, bits=bits, block_size=block, kernel_size=3, padding=1
    )
    assert torch.equal(out.double(), expected.flip(2, 3).transpose(0, 1))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offsets", [False, True])
def test_conv_integer_lattice_is_exact(offsets: bool, dtype: torch.dtype, bits: int) -> None:
    # Sums of integers below 2^24 times a power of two are exact in fp32 in any order.
    in_c, out_c, block = 72, 40, 32
    low = -(2 ** (bits - 1))
    q = torch.randint(low, -low, (out_c, in_c, 3, 2), dtype=torch.int8)
    blocks = (num_blocks(in_c, block), out_c)
    scales = torch.full(blocks, 2.0**-6, dtype=dtype)
    shifts = (torch.randint(low, -low, blocks) * 2.0**-6).to(dtype) if offsets else None
    bias = torch.randint(-8, 9, (out_c,)).to(dtype)
    images = torch.randint(-2, 3, (3, in_c, 9, 8)).to(dtype)
    options = {"block_size": block, "stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)}
    packed = mixed_gemm.pack_conv_weights(q, bits)
    out = mixed_gemm.qconv2d(
        images, packed, scales, shifts, bias, bits=bits, kernel_size=(3, 2), **options
    )
    expected = reference_conv.qconv2d(images, q, scales, shifts, bias, **options)
    assert torch.equal(out, expected.to(dtype))


@pytest.mark.parametrize("offsets", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("in_c", [20, 64, 100])
def test_pointwise_conv_equals_the_gemm(in_c: int, dtype: torch.dtype, offsets: bool) -> None:
    block = 16
    case = ConvCase(2, in_c, 72, (5, 6), (1, 1), padding=(0, 0), dtype=dtype, block_size=block)
    p = make(replace(case, offsets=offsets, bias=True))
    rows = p.input.permute(0, 2, 3, 1)
    packed = mixed_gemm.pack_weights(p.q.reshape(72, in_c), 4)
    assert torch.equal(packed, p.packed)
    gemm = mixed_gemm.fpA_intB_gemm(
        rows, packed, p.scales, p.offsets, p.bias, bits=4, group_size=block, zero_mode="add"
    )
    assert torch.equal(p.run(), gemm.permute(0, 3, 1, 2))


def sliced(x: Tensor) -> Tensor:
    wide = torch.full((x.shape[0], x.shape[1] + 9, x.shape[2] + 3, x.shape[3] * 2), torch.nan)
    wide = wide.to(x.dtype).contiguous(memory_format=torch.channels_last)
    wide[:, 4:-5, 1:-2, ::2] = x
    return wide[:, 4:-5, 1:-2, ::2]


def misaligned(x: Tensor) -> Tensor:
    flat = torch.empty(x.numel() + 1, dtype=x.dtype)
    flat[1:] = x.flatten()
    return flat[1:].view(x.shape)


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "NCHW": lambda x: x.contiguous(),
    "channels-last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "slice": sliced,
    "misaligned": misaligned,
    "transposed image": lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
    "batch innermost": lambda x: x.permute(1, 2, 3, 0).contiguous().permute(3, 0, 1, 2),
}


@pytest.mark.parametrize("kernel", [(3, 3), (1, 1)])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("view", VIEWS)
def test_conv_reads_any_strides(view: str, dtype: torch.dtype, kernel: tuple[int, int]) -> None:
    padding = (kernel[0] // 2, kernel[1] // 2)
    p = make(ConvCase(in_c=40, kernel=kernel, padding=padding, dtype=dtype, block_size=16))
    seen = VIEWS[view](p.input)
    assert torch.equal(seen, p.input)
    assert torch.equal(p.run(seen), p.run())


def test_conv_expanded_images_and_strided_scales() -> None:
    p = make(ConvCase(images=1, in_c=40, block_size=16, offsets=True, bias=True))
    one, three = p.run(), p.input.expand(3, -1, -1, -1)
    # Not against `one`: more rows may take another path, which adds in another order.
    assert torch.equal(p.run(three), p.run(three.contiguous()))
    p.scales = torch.stack((p.scales, p.scales * 7), dim=-1)[..., 0]
    assert p.offsets is not None and p.bias is not None
    p.offsets = torch.cat((p.offsets, p.offsets * 7), dim=1)[:, : p.case.out_c]
    p.bias = torch.stack((p.bias, p.bias * 7), dim=1)[:, 0]
    assert torch.equal(p.run(), one)


STRIDES = (
    ("dense", lambda x: x),
    ("channels-last", lambda x: x.contiguous(memory_format=torch.channels_last)),
    ("slice of channels", lambda x: x[:, : max(1, x.shape[1] // 2)]),
    ("every other pixel", lambda x: x[:, :, ::2, ::2]),
    ("transposed", lambda x: x.transpose(2, 3)),
    ("expanded", lambda x: x[:, :, :1].expand_as(x)),
)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("sizes", list(itertools.product((1, 2), (1, 3), (1, 4), (1, 5))), ids=str)
def test_conv_output_has_the_memory_format_that_torch_gives_it(
    sizes: tuple[int, ...], last: bool
) -> None:
    for name, change in STRIDES:
        x = torch.randn(*sizes)
        x = change(x.contiguous(memory_format=torch.channels_last) if last else x)
        in_c = x.shape[1]
        q = torch.zeros(6, in_c, 1, 1, dtype=torch.int8)
        packed, scales = mixed_gemm.pack_conv_weights(q, 8), torch.ones(1, 6)
        out = mixed_gemm.qconv2d(x, packed, scales, bits=8, kernel_size=1)
        suggested = torch._prims_common.suggest_memory_format(x)
        assert is_channels_last(x) == (suggested == torch.channels_last), (name, x.stride())
        assert out.stride() == torch.empty(out.shape, memory_format=suggested).stride(), name


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("in_c", [1, 3, 8, 9, 16, 17, 32, 33, 64, 65, 130])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (2, 5)])
def test_packed_filter_is_the_padded_matrix(kernel: tuple[int, int], in_c: int, bits: int) -> None:
    low = -(2 ** (bits - 1))
    q = torch.randint(low, -low, (70, in_c, *kernel), dtype=torch.int8)
    channels = channels_per_tap(in_c)
    assert channels in (8, 16, 32) or channels % 64 == 0
    assert in_c <= channels < in_c + 64
    matrix = torch.nn.functional.pad(q.permute(0, 2, 3, 1), (0, channels - in_c)).flatten(1)
    want = mixed_gemm.pack_weights(matrix, bits)
    assert torch.equal(mixed_gemm.pack_conv_weights(q, bits), want)
    last = q.contiguous(memory_format=torch.channels_last)
    assert torch.equal(mixed_gemm.pack_conv_weights(last, bits), want)


def test_conv_does_not_read_beyond_the_image_nor_write_beyond_the_output() -> None:
    # NaN around a slice of an image: the sum would be NaN. Also the padding.
    p = make(ConvCase(in_c=33, kernel=(3, 3), padding=(2, 2), dtype=torch.float32))
    out = p.run(sliced(p.input))
    assert out.isfinite().all()
    assert p.ratio(out) <= 1


def test_conv_passes_nan_on_where_the_filter_sees_it() -> None:
    p = make(ConvCase(images=1, in_c=8, size=(7, 7), dtype=torch.float32, offsets=True))
    p.input[0, 3, 3, 3] = torch.nan
    seen = p.run().isnan().any(1)[0]
    want = torch.zeros(7, 7, dtype=torch.bool)
    want[2:5, 2:5] = True
    assert torch.equal(seen, want)


BOUNDED: dict[str, Callable[[Tensor], Tensor]] = {
    "a tap shifted": lambda q: q.roll(1, 3),
    "taps transposed": lambda q: q.transpose(2, 3),
    "two channels swapped": lambda q: q[:, [1, 0, *range(2, q.shape[1])]],
    "the last channel dropped": lambda q: torch.cat((q[:, :-1], 0 * q[:, -1:]), dim=1),
    "a filter of its neighbour": lambda q: q[[1, 1, *range(2, q.shape[0])]],
    "one weight off by one": lambda q: (q + (torch.arange(q.numel()).view(q.shape) == 777)).to(
        torch.int8
    ),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("mutant", BOUNDED)
def test_bound_kills(mutant: str, dtype: torch.dtype) -> None:
    p = make(ConvCase(in_c=40, out_c=16, size=(9, 9), dtype=dtype, block_size=16, bias=True))
    right, wrong = p.run(), mixed_gemm.pack_conv_weights(BOUNDED[mutant](p.q), 4)
    assert p.ratio(right) <= 1
    p.packed = wrong
    assert p.ratio(p.run()) > 1


@pytest.mark.parametrize("block", [-1, 16])
def test_reference_equals_counting(block: int) -> None:
    # The oracle itself, against loops.
    p = make(ConvCase(1, 20, 3, (4, 3), (2, 3), (1, 2), (1, 0), offsets=True, block_size=block))
    w = torch.zeros(3, 20, 2, 3, dtype=torch.float64)
    assert p.offsets is not None
    for o, c in itertools.product(range(3), range(20)):
        b = 0 if block == -1 else c // block
        w[o, c] = p.q[o, c].double() * p.scales[b, o].double() + p.offsets[b, o].double()
    padded = torch.nn.functional.pad(p.input.double(), (0, 0, 1, 1))
    y = torch.empty(1, 3, 5, 1, dtype=torch.float64)
    for o, i in itertools.product(range(3), range(5)):
        y[0, o, i, 0] = (padded[0, :, i : i + 2, 0:3] * w[o]).sum()
    torch.testing.assert_close(p.expected(), y, rtol=1e-13, atol=1e-13)


PORTABLE = """
import sys
import torch
from problems.conv import ConvCase, make
case = ConvCase(in_c=100, block_size=48, offsets=True, bias=True, activation="silu")
p = make(case)
sys.exit(0 if p.ratio(p.run()) <= 1 else 1)
"""


@pytest.mark.parametrize("instruction_set", ["portable", "avx2", "avx512"])
def test_conv_on_slower_instruction_sets(instruction_set: str) -> None:
    repository = Path(__file__).resolve().parents[3]
    folders = (str(repository), str(repository / "tests"))
    path = os.pathsep.join((*folders, os.environ.get("PYTHONPATH", "")))
    environment = {**os.environ, "MIXED_GEMM_CPU": instruction_set, "PYTHONPATH": path}
    run = subprocess.run(
        [sys.executable, "-c", PORTABLE],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr


def test_error_ratio_sees_a_wrong_shape() -> None:
    p = make(ConvCase())
    assert reference.error_ratio(p.run()[:, :-1], p.expected(), p.expected()) == float("inf")
