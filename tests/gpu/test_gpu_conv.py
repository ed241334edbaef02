"""The convolutions on CUDA: every kernel and split against float64 (int64 for int8), odd inputs."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

import mixed_gemm
from mixed_gemm import reference
from mixed_gemm.reference import conv as reference_conv

pytestmark = pytest.mark.gpu

ops = torch.ops.mixed_gemm


@dataclass(frozen=True)
class Conv:
    """One convolution. ``block`` of channels; -1 is all of them."""

    n: int
    ci: int
    h: int
    w: int
    co: int
    kernel: tuple[int, int] = (3, 3)
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    block: int = -1
    offsets: bool = False
    bias: bool = False
    activation: str = "identity"
    channels_last: bool = True
    bits: int = 4
    dtype: torch.dtype = torch.float16

    def geometry(self) -> dict[str, Any]:
        return {"stride": self.stride, "padding": self.padding, "dilation": self.dilation}

    def options(self) -> dict[str, Any]:
        return {
            **self.geometry(),
            "bits": self.bits,
            "block_size": self.block,
            "kernel_size": self.kernel,
            "activation": self.activation,
        }


CONVS = (
    Conv(1, 64, 14, 14, 64),
    Conv(2, 128, 9, 7, 136, stride=(2, 2), block=64),
    Conv(1, 3, 30, 31, 24, (7, 7), (2, 2), (3, 3), bias=True, activation="relu"),
    Conv(3, 17, 8, 8, 5, (3, 1), padding=(1, 0), block=16, offsets=True),
    Conv(1, 1, 12, 5, 1, (5, 5), padding=(6, 5)),
    Conv(1, 513, 5, 5, 520, (1, 3), padding=(0, 2), block=128, bias=True),
    Conv(4, 96, 7, 7, 100, (2, 2), padding=(0, 0), block=32, offsets=True, bias=True),
    Conv(32, 32, 6, 6, 8, dilation=(2, 3), padding=(3, 3), block=16, activation="relu6"),
    Conv(1, 256, 14, 14, 256, block=128, offsets=True, channels_last=False),
    Conv(2, 65, 6, 9, 72, stride=(3, 1), block=48, channels_last=False, activation="silu"),
    Conv(5, 8, 4, 4, 16, (4, 4), padding=(0, 0), offsets=True),
    Conv(1, 192, 10, 10, 128, (3, 3), block=64, offsets=True, activation="relu"),
    Conv(1, 24, 16, 16, 33, (6, 2), (2, 3), (2, 1), (1, 2), bias=True),
    Conv(2, 100, 9, 9, 64, (1, 1), (2, 2), (0, 0), block=96),  # 1 x 1 that skips pixels
)


@dataclass
class Tensors:
    conv: Conv
    input: Tensor
    q: Tensor
    packed: Tensor
    scales: Tensor
    offsets: Tensor | None
    bias: Tensor | None

    def parameters(self) -> tuple[Tensor | None, ...]:
        return self.scales, self.offsets, self.bias

    def run(self, input: Tensor | None = None, config: str | None = None) -> Tensor:
        x = self.input if input is None else input
        if config is None:
            return ops.qconv2d(x, self.packed, *self.parameters(), **self.conv.options())
        return ops._qconv2d_config(
            x, self.packed, *self.parameters(), **self.conv.options(), config=config
        )

    def configs(self) -> list[str]:
        names = ops._qconv2d_configs(
            self.input, self.packed, *self.parameters(), **self.conv.options()
        )
        return names.split()

    def exact_and_bound(self) -> tuple[Tensor, Tensor]:
        keywords = {
            **self.conv.geometry(),
            "block_size": self.conv.block,
            "activation": self.conv.activation,
        }
        arguments = (self.input, self.q, *self.parameters())
        return (
            reference_conv.qconv2d(*arguments, **keywords),
            reference_conv.error_bound(*arguments, **keywords),
        )


def make(conv: Conv, device: str = "cuda") -> Tensors:
    g = torch.Generator().manual_seed(zlib.crc32(repr(conv).encode()))
    low, high = -(2 ** (conv.bits - 1)), 2 ** (conv.bits - 1)
    blocks = 1 if conv.block == -1 else -(-conv.ci // conv.block)
    q = torch.randint(low, high, (conv.co, conv.ci, *conv.kernel), generator=g, dtype=torch.int8)
    x = torch.randn(conv.n, conv.ci, conv.h, conv.w, generator=g)
    scales = (torch.rand(blocks, conv.co, generator=g) + 0.5) / high
    offsets = torch.randn(blocks, conv.co, generator=g) * 0.1 if conv.offsets else None
    bias = torch.randn(conv.co, generator=g) if conv.bias else None

    def place(t: Tensor | None) -> Tensor | None:
        return None if t is None else t.to(conv.dtype).to(device)

    layout = torch.channels_last if conv.channels_last else torch.contiguous_format
    q = q.to(device)
    x = x.to(conv.dtype).to(device).contiguous(memory_format=layout)
    packed = ops.pack_conv_weights(q, conv.bits)
    return Tensors(conv, x, q, packed, place(scales), place(offsets), place(bias))  # type: ignore[arg-type]


@pytest.mark.parametrize("bits", (4, 8))
@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16), ids=str)
@pytest.mark.parametrize("conv", CONVS, ids=str)
def test_every_kernel_and_split(record, conv, dtype, bits):
    tensors = make(replace(conv, dtype=dtype, bits=bits))
    exact, bound = tensors.exact_and_bound()
    configs = tensors.configs()
    assert sum(name.startswith("implicit") for name in configs) > 3
    for config in [None, *configs]:
        out = tensors.run(config=config)
        assert out.shape == exact.shape and out.dtype == dtype
        layout = torch.channels_last if conv.channels_last else torch.contiguous_format
        assert out.is_contiguous(memory_format=layout)
        record(f"qconv2d-{config}", reference.error_ratio(out, exact, bound))


@pytest.mark.parametrize("conv", CONVS[::3], ids=str)
def test_float32(record, conv, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    tensors = make(replace(conv, dtype=torch.float32))
    record("qconv2d-float32", reference.error_ratio(tensors.run(), *tensors.exact_and_bound()))


@pytest.mark.parametrize("bits", (4, 8))
@pytest.mark.parametrize("conv", (Conv(2, 64, 8, 8, 64, (1, 1), padding=(0, 0), block=32),
                                  Conv(1, 513, 7, 7, 72, (1, 1), padding=(0, 0), block=128,
                                       offsets=True, bias=True, channels_last=False),
                                  Conv(1, 256, 1, 1, 1000, (1, 1), padding=(0, 0), block=64),
                                  Conv(32, 128, 28, 28, 512, (1, 1), padding=(0, 0), block=128)),
                         ids=str)  # fmt: skip
def test_pointwise_is_the_gemm(record, conv, bits):
    tensors = make(replace(conv, bits=bits))
    ratio = reference.error_ratio(tensors.run(), *tensors.exact_and_bound())
    record("qconv2d-pointwise", ratio)


def test_integers_are_exact():
    """Sums of small integers are exact in fp32, so every kernel gives the exact result rounded once
    and all agree bit by bit."""
    conv = Conv(2, 80, 9, 9, 40, block=16, offsets=True)
    tensors = make(conv)
    tensors.input.copy_(torch.randint(-2, 3, tensors.input.shape))
    tensors.scales.fill_(2.0**-6)
    assert tensors.offsets is not None
    tensors.offsets.copy_(torch.randint(-4, 5, tensors.offsets.shape) / 64)
    exact = tensors.exact_and_bound()[0].to(conv.dtype)
    for config in tensors.configs():
        assert torch.equal(tensors.run(config=config), exact), config


def views(x: Tensor) -> dict[str, Tensor]:
    n, c, h, w = x.shape
    nan = {"dtype": x.dtype, "device": x.device}

    def hole(*shape: int) -> Tensor:
        return torch.full(shape, float("nan") if x.is_floating_point() else 77, **nan)

    wide = hole(n, c + 8, h, w).contiguous(memory_format=torch.channels_last)
    wide[:, :c] = x
    big = hole(2 * n, c, h + 2, w + 3)
    big[::2, :, 1 : 1 + h, 2 : 2 + w] = x
    flat = hole(x.numel() + 1)
    flat[1:] = x.permute(0, 2, 3, 1).reshape(-1)
    return {
        "channels of more": wide[:, :c],
        "window of every second image": big[::2, :, 1 : 1 + h, 2 : 2 + w],
        "odd offset": flat[1:].view(n, h, w, c).permute(0, 3, 1, 2),
        "turned": x.transpose(2, 3).contiguous().transpose(2, 3),
        "NCHW": x.contiguous(),
    }


def test_views_equal_channels_last():
    tensors = make(Conv(2, 64, 8, 6, 48, block=32, offsets=True))
    config = "implicit_m32n64s4"
    expected = tensors.run(config=config)
    for name, view in views(tensors.input).items():
        assert torch.equal(tensors.run(view, config), expected), name


def test_nothing_to_do_and_infinity_outside():
    tensors = make(Conv(2, 64, 8, 6, 48))
    assert tensors.run(tensors.input[:0]).shape == (0, 48, 8, 6)
    x = tensors.input.clone(memory_format=torch.preserve_format)
    x[0, 0, 0, 0] = float("inf")
    for config in tensors.configs():
        out, before = tensors.run(x, config), tensors.run(config=config)
        # Not asked of the library's convolution: torch 2.11 on an H200 gave 0 for sums of -inf.
        if config != "dequantize_conv":
            assert not out[0, :, :2, :2].isfinite().any(), config
        reached = torch.zeros_like(out, dtype=torch.bool)
        reached[0, :, :2, :2] = True
        assert torch.equal(out[~reached], before[~reached]), config


@pytest.mark.parametrize(
    "config",
    (None, "implicit_m32n64s4_streamk1", "implicit_m16n64s3k8_cluster2", "dequantize_conv"),
)
def test_side_stream_and_graph(config):
    tensors = make(Conv(1, 128, 14, 14, 128, block=64))
    expected = tensors.run(config=config)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        out = tensors.run(config=config)
    stream.synchronize()
    assert torch.equal(out, expected)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = tensors.run(config=config)
    tensors.input.mul_(2)
    graph.replay()
    assert torch.equal(out, tensors.run(config=config))


INT8 = (
    Conv(1, 64, 14, 14, 64),
    Conv(2, 17, 9, 7, 33, (3, 2), (2, 1), (2, 1)),
    Conv(1, 3, 30, 31, 24, (7, 7), (2, 2), (3, 3), bias=True),
    Conv(3, 128, 8, 8, 136, (1, 1), padding=(0, 0), bias=True),
    Conv(1, 513, 5, 5, 520, (1, 3), padding=(0, 3), channels_last=False),
    Conv(32, 32, 6, 6, 8, dilation=(2, 3), padding=(3, 3)),
    Conv(2, 256, 14, 14, 256, stride=(2, 2), bias=True),
    Conv(1, 1, 12, 5, 1, (5, 5), padding=(6, 5)),
)


@pytest.mark.parametrize("zero_point", (0, -128, 37))
@pytest.mark.parametrize("conv", INT8, ids=str)
def test_int8_is_exact(conv, zero_point):
    g = torch.Generator().manual_seed(zlib.crc32(repr(conv).encode()))
    layout = torch.channels_last if conv.channels_last else torch.contiguous_format
    x = torch.randint(-128, 128, (conv.n, conv.ci, conv.h, conv.w), generator=g, dtype=torch.int8)
    x = x.cuda().contiguous(memory_format=layout)
    size = (conv.co, conv.ci, *conv.kernel)
    weight = torch.randint(-128, 128, size, generator=g, dtype=torch.int8).cuda()
    weight_scale = (torch.rand(conv.co, generator=g) + 0.5).cuda() / 100
    bias = torch.randn(conv.co, generator=g).cuda() * 5 if conv.bias else None
    options: dict[str, Any] = {
        "input_scale": 0.02,
        "input_zero_point": zero_point,
        "output_scale": 0.02 * 74 * (conv.ci * conv.kernel[0] * conv.kernel[1]) ** 0.5 / 60,
        "output_zero_point": -5,
        "clamp_min": -100,
        "clamp_max": 120,
        **conv.geometry(),
    }
    arguments = (x, weight, weight_scale, bias)
    exact = reference_conv.qconv2d_int8(*arguments, **options)
    assert exact.unique().numel() > 20  # not all of it is clamped
    configs = ops._qconv2d_int8_configs(*arguments, **options).split()
    assert len(configs) >= 3
    for config in configs:
        out = ops._qconv2d_int8_config(*arguments, **options, config=config)
        assert torch.equal(out, exact), config
    assert torch.equal(ops.qconv2d_int8(*arguments, **options), exact)
    for name, view in views(x).items():
        assert torch.equal(ops.qconv2d_int8(view, *arguments[1:], **options), exact), name


def test_unknown_and_impossible_configs():
    tensors = make(Conv(1, 64, 6, 6, 64, bias=True))
    with pytest.raises(RuntimeError, match="unknown config multistage_m64n128s4"):
        tensors.run(config="multistage_m64n128s4")
    with pytest.raises(RuntimeError, match="would round before it adds the bias"):
        tensors.run(config="dequantize_conv")


def test_module_follows_its_input():
    float_conv = torch.nn.Conv2d(64, 48, 3, padding=1).cuda().half()
    module = mixed_gemm.Conv2d.from_float(float_conv, bits=8, block_size=32)
    x = torch.randn(2, 64, 10, 10, device="cuda", dtype=torch.float16)
    assert (module(x) - float_conv(x)).abs().mean() < 0.01
