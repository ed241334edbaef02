"""qconv2d: convolutions with weights of 4 and 8 bits."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

import mixed_gemm
from mixed_gemm.selection.operands import copies_for
from mixed_gemm.selection.timing import Call

from ..benchmark import Benchmark, Case, Effort
from ..operands import Operands
from ..row import Point
from ..schemes import Scheme
from ..timed import CONV2D, QCONV2D

ops = torch.ops.mixed_gemm
BITS, BLOCK = 4, 64
DEQUANTIZE = "dequantize_conv"  # the configuration that makes a dense weight first
# Every convolution of ResNet-50, once: input channels, image, output channels, kernel, stride.
RESNET_50 = (
    "3x224x224 -> 64, 7x7, stride 2",
    "64x56x56 -> 64, 1x1, stride 1",
    "64x56x56 -> 64, 3x3, stride 1",
    "64x56x56 -> 256, 1x1, stride 1",
    "256x56x56 -> 64, 1x1, stride 1",
    "256x56x56 -> 128, 1x1, stride 1",
    "128x56x56 -> 128, 3x3, stride 2",
    "128x28x28 -> 512, 1x1, stride 1",
    "256x56x56 -> 512, 1x1, stride 2",
    "512x28x28 -> 128, 1x1, stride 1",
    "128x28x28 -> 128, 3x3, stride 1",
    "512x28x28 -> 256, 1x1, stride 1",
    "256x28x28 -> 256, 3x3, stride 2",
    "256x14x14 -> 1024, 1x1, stride 1",
    "512x28x28 -> 1024, 1x1, stride 2",
    "1024x14x14 -> 256, 1x1, stride 1",
    "256x14x14 -> 256, 3x3, stride 1",
    "1024x14x14 -> 512, 1x1, stride 1",
    "512x14x14 -> 512, 3x3, stride 2",
    "512x7x7 -> 2048, 1x1, stride 1",
    "1024x14x14 -> 2048, 1x1, stride 2",
    "2048x7x7 -> 512, 1x1, stride 1",
    "512x7x7 -> 512, 3x3, stride 1",
)
_LAYER = re.compile(r"(\d+)x(\d+)x(\d+)x\3 -> (\d+), (\d+)x\5, stride (\d+)")


@dataclass(frozen=True)
class Layer:
    """A convolution of square images by square kernels, padded by half of the kernel."""

    images: int
    in_c: int
    side: int
    out_c: int
    kernel: int
    stride: int

    @classmethod
    def parse(cls, text: str) -> Layer:
        """Read ``8x3x224x224 -> 64, 7x7, stride 2``: images, channels, sides.

        Raises:
            ValueError: the text is not of that form.
        """
        found = _LAYER.fullmatch(text)
        if not found:
            raise ValueError(f"a layer must look like 8x3x224x224 -> 64, 7x7, stride 2, got {text}")
        images, in_c, side, out_c, kernel, stride = map(int, found.groups())
        return cls(images, in_c, side, out_c, kernel, stride)

    @property
    def padding(self) -> int:
        return self.kernel // 2

    @property
    def block_size(self) -> int:
        """Channels that share a scale; the first layer of a network has too few for blocks."""
        return min(BLOCK, self.in_c) if self.in_c % 16 == 0 else -1

    def pixels(self) -> int:
        """The pixels of all output images."""
        side = (self.side + 2 * self.padding - self.kernel) // self.stride + 1
        return self.images * side * side

    def point(self, text: str) -> Point:
        return Point(self.out_c, self.in_c * self.kernel**2, self.pixels(), text)


class ConvOperands(Operands):
    """Random operands of a convolution, channels-last."""

    def __init__(self, layer: Layer, offsets: bool, device: torch.device) -> None:
        super().__init__(layer.out_c, layer.in_c * layer.kernel**2, device)
        self.layer, self.offsets = layer, offsets
        shape = (layer.images, layer.in_c, layer.side, layer.side)
        self.x = self.normal(*shape).contiguous(memory_format=torch.channels_last)
        self.options: dict[str, Any] = {
            "bits": BITS,
            "block_size": layer.block_size,
            "kernel_size": [layer.kernel] * 2,
            "stride": [layer.stride] * 2,
            "padding": [layer.padding] * 2,
        }

    def weights(self) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]]:
        """Return packed weight, scales and offsets of each copy."""
        layer = self.layer
        blocks = 1 if layer.block_size == -1 else -(-layer.in_c // layer.block_size)

        def offsets() -> torch.Tensor | None:
            return self.normal(blocks, self.n) if self.offsets else None

        def make() -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]]:
            half = 2 ** (BITS - 1)
            q = self.integers(-half, half, layer.out_c, layer.in_c, *[layer.kernel] * 2)
            packed = self.copies(mixed_gemm.pack_conv_weights(q, BITS))
            return [(w, self.uniform(blocks, self.n), offsets()) for w in packed]

        return self.once("weights", make)

    def configs(self) -> list[str]:
        """The names that the planner lists, the selected one first; on the CPU there is one way."""
        if self.device.type != "cuda":
            return ["cpu"]
        names: str = ops._qconv2d_configs(self.x, *self.weights()[0], **self.options)
        return names.split()

    def ours(self, config: str) -> list[Call]:
        op = partial(mixed_gemm.qconv2d, self.x, **self.options)
        if self.device.type == "cuda":
            op = partial(ops._qconv2d_config, self.x, **self.options, config=config)
        return [partial(op, *weight) for weight in self.weights()]

    def torch_conv(self) -> list[Call]:
        layer = self.layer
        shape = (layer.out_c, layer.in_c, layer.kernel, layer.kernel)
        count = copies_for(2 * self.n * self.k, self.device)
        weights = [
            self.normal(*shape).contiguous(memory_format=torch.channels_last) for _ in range(count)
        ]
        op = partial(torch.nn.functional.conv2d, self.x, stride=layer.stride, padding=layer.padding)
        return [partial(op, w) for w in weights]


class Qconv2d(Benchmark):
    """qconv2d on the layers of ResNet-50 against torch's fp16 convolution (channels-last; cuDNN on
    a GPU) and against "dequantize, then that convolution"."""

    name = "qconv2d"
    effort = Effort(rounds=5, within=float("inf"))

    def __init__(self, device: torch.device, options: argparse.Namespace) -> None:
        super().__init__(device, options)
        torch.backends.cudnn.benchmark = True

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--batches", default="1,8,32", help="images")
        parser.add_argument(
            "--layers", help="'64x56x56 -> 64, 3x3, stride 1; ...' instead of those of ResNet-50"
        )
        parser.add_argument("--offsets", action="store_true", help="w = q * scale + offset")

    def points(self) -> list[Point]:
        asked = self.options.layers
        layers = [text.strip() for text in asked.split(";")] if asked else RESNET_50
        texts = [f"{b}x{layer}" for b in self.options.batches.split(",") for layer in layers]
        return [Layer.parse(text).point(text) for text in texts]

    def all_points(self) -> Iterable[Point]:
        return self.points()

    def operands(self, point: Point) -> ConvOperands:
        return ConvOperands(Layer.parse(point.layer), self.options.offsets, self.device)

    def cases(self, operands: ConvOperands, point: Point, effort: Effort) -> Iterator[Case]:
        layer, zero_mode = operands.layer, "add" if self.options.offsets else None
        scheme = Scheme(BITS, layer.block_size, zero_mode, "float16")
        dense = Scheme.dense("float16")
        pixels = 2 * (layer.images * layer.in_c * layer.side**2 + point.m * point.n)
        listed = operands.configs()
        names = effort.chosen(listed[0], dict.fromkeys(listed))
        for name in dict.fromkeys([*names, *(x for x in listed if x == DEQUANTIZE)]):
            yield Case(
                QCONV2D,
                scheme,
                operands.ours(name),
                kernel=name,
                selected=name == listed[0],
                nbytes=pixels + sum(t.nbytes for t in operands.weights()[0] if t is not None),
                always=name == DEQUANTIZE,
            )
        nbytes = pixels + 2 * point.n * point.k
        yield Case(CONV2D, dense, operands.torch_conv(), nbytes=nbytes)
