"""block_quant_gemm: weights with a scale and an offset for each block of K, activations rounded
block by block."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import torch

import mixed_gemm
from mixed_gemm.selection.planning import device_string
from mixed_gemm.selection.timing import Call

from ..benchmark import Benchmark, Case, Effort
from ..operands import Operands
from ..row import Point
from ..schemes import Scheme
from ..timed import BLOCK_GEMM, DENSE, LOOP, LOOP_PRODUCTS

SHAPES = ((4096, 4096), (14336, 4096), (4096, 14336), (8192, 8192))
MS = (1, 16, 64, 256, 1024, 4096)
LEAST_ROWS = 32  # torch._int_mm refuses 16 rows and fewer: those are padded
MOST_LOOPS = 2  # copies of the weight for the loops: a call takes far longer than L2 keeps anything


def round_blocks(a: torch.Tensor, block: int) -> tuple[torch.Tensor, ...]:
    """Return q int8 [G, M, block], scale, offset and sum of each block, float32 [M, G]."""
    x = a.float().view(len(a), -1, block)
    low, high = x.amin(-1), x.amax(-1)
    scale = ((high - low) / 255).clamp(min=torch.finfo(torch.float32).tiny)
    offset = high - 127 * scale
    q = ((x - offset[..., None]) / scale[..., None]).round().clamp(-128, 127).to(torch.int8)
    total = scale * q.sum(-1, dtype=torch.float32) + block * offset
    return q.transpose(0, 1).contiguous(), scale, offset, total


@dataclass
class Weight:
    """One copy: int8 [N, K], and what the loop needs, made when it is first asked for."""

    q: torch.Tensor
    scales: torch.Tensor  # [G, N]
    offsets: torch.Tensor
    block: int

    @cached_property
    def blocks(self) -> list[torch.Tensor]:
        return [part.contiguous().t() for part in torch.split(self.q, self.block, dim=1)]

    @cached_property
    def cross(self) -> torch.Tensor:
        """[2 G, N]: multiplied by the sums and the offsets of the rows."""
        sums = torch.stack([part.sum(0, dtype=torch.int32) for part in self.blocks])
        return torch.cat((self.offsets.float(), self.scales.float() * sums))

    @cached_property
    def wide(self) -> list[torch.Tensor]:
        return list(self.scales.float())

    def loop(self, rows: tuple[torch.Tensor, ...], m: int) -> torch.Tensor:
        """Multiply in torch: for each block torch._int_mm and its sums scaled into fp32 ones, and
        the cross terms of all blocks as one product."""
        q, scale, offset, total = rows
        out = torch.cat((total, offset), dim=1) @ self.cross
        for i, part in enumerate(self.blocks):
            products = torch._int_mm(q[i], part)
            out.addcmul_(products * scale[:, i : i + 1], self.wide[i])
        return out[:m].half()


class BlockOperands(Operands):
    """Random operands of a product with blocks of ``block`` along K."""

    def __init__(self, n: int, k: int, device: torch.device, block: int) -> None:
        super().__init__(n, k, device)
        self.block = block

    def weights(self) -> list[Weight]:
        def make() -> list[Weight]:
            groups = self.k // self.block
            scales = self.uniform(groups, self.n) * 0.01
            offsets = self.normal(groups, self.n) * 0.1
            codes = self.copies(self.integers(-128, 128, self.n, self.k))
            return [Weight(q, scales, offsets, self.block) for q in codes]

        return self.once("weights", make)

    def ours(self, m: int, config: str) -> list[Call]:
        """Return one call of the op, with a configuration forced, for each copy of the weight; on
        the CPU, where nothing is to choose, of the op itself."""
        a = self.activations(m, "float16")
        op = partial(mixed_gemm.block_quant_gemm, block_size=self.block)
        if self.device.type == "cuda":
            forced = torch.ops.mixed_gemm._block_quant_gemm_config
            op = partial(forced, block_size=self.block, config=config)
        return [partial(op, a, w.q.t(), w.scales, w.offsets) for w in self.weights()]

    def loops(self, m: int) -> tuple[list[Call], list[Call]]:
        """Return the same calls in torch, and without the rounding: given int8 rows and scales."""
        a = self.activations(m, "float16")
        padded = torch.cat((a, a.new_zeros(max(0, LEAST_ROWS - m), self.k)))
        rows = round_blocks(padded, self.block)
        weights = self.weights()[:MOST_LOOPS]

        def whole(w: Weight) -> torch.Tensor:
            return w.loop(round_blocks(padded, self.block), m)

        return [partial(whole, w) for w in weights], [partial(w.loop, rows, m) for w in weights]


class BlockQuantGemm(Benchmark):
    """block_quant_gemm against a loop of torch._int_mm over the blocks of K, with and without the
    rounding of the rows, and torch's dense fp16 GEMM."""

    name = "block_quant_gemm"
    effort = Effort(rounds=5, within=float("inf"))

    def __init__(self, device: torch.device, options: argparse.Namespace) -> None:
        super().__init__(device, options)
        torch.backends.cuda.matmul.allow_tf32 = False  # the loop's cross terms are fp32

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--block-size", type=int, default=128)

    def all_points(self) -> Iterable[Point]:
        return [Point(n, k, m) for n, k in SHAPES for m in MS]

    def operands(self, point: Point) -> BlockOperands:
        return BlockOperands(point.n, point.k, self.device, self.options.block_size)

    def cases(self, operands: BlockOperands, point: Point, effort: Effort) -> Iterator[Case]:
        block, m = self.options.block_size, point.m
        ask = torch.ops.mixed_gemm._plan_block_quant_gemm
        answer = json.loads(ask(m, point.n, point.k, block, device_string(self.device)))
        predicted = {c["config"]: c["predicted_us"] for c in answer["candidates"]}
        scheme = Scheme(8, block, "add", "float16")
        selected = answer["selected"]
        for name in effort.chosen(selected, predicted):
            calls = operands.ours(m, name)
            yield Case(
                BLOCK_GEMM,
                scheme,
                calls,
                kernel=name,
                selected=name == selected,
                arithmetic="int8",
            )
        for op, calls in zip((LOOP, LOOP_PRODUCTS), operands.loops(m), strict=True):
            yield Case(op, scheme, calls, arithmetic="int8")
        yield Case(DENSE, Scheme.dense("float16"), operands.dense("float16", m))
