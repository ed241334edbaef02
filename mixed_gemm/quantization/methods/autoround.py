"""AutoRound (Cheng et al. 2023, https://arxiv.org/abs/2309.05516): whether each weight goes up or
down, and the range of each group, are learned so that the block computes what it did: the sign of
the gradient, some hundred steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...weights.rounding import nonzero_scale
from ..block import CalibrationBlock
from ..block_layer import BlockLayer
from ..state import frozen
from .codes import as_weight
from .grid import Grid, Range, grouped

CLIP = (0.5, 1.05)  # least and largest factor on the two ends of a range


class _Learned:
    """A weight that is rounded in a way that has gradients.

    offset: in steps, added before rounding, -0.5..0.5 ``[N, K]``. low, high: what the ends of the
    range of each group are multiplied by, ``[N, G, 1]``.
    """

    def __init__(self, layer: BlockLayer, bits: int | None) -> None:
        self.layer, weight = layer, layer.dense.float()
        self.range = Range.of(layer.target.scheme, weight.shape[1], layer.dense.dtype, bits)
        self.weight = grouped(weight, self.range.group)
        self.offset = torch.zeros_like(self.weight, requires_grad=True)
        ends = torch.ones_like(self.weight[..., :1])
        self.low = ends.clone().requires_grad_()
        self.high = ends.clone().requires_grad_()
        index = self.weight.abs().argmax(-1, keepdim=True)
        self._extreme = self.weight.gather(-1, index)
        self._least = self.weight.amin(-1, keepdim=True).clamp(max=0)
        self._largest = self.weight.amax(-1, keepdim=True).clamp(min=0)

    def parameters(self) -> list[Tensor]:
        return [self.offset, self.low, *([self.high] if self.range.has_zeros else [])]

    def _scale(self) -> tuple[Tensor, Tensor]:
        of = self.range
        if not of.has_zeros:
            scale = self._extreme * self.low / of.low
            return torch.where(scale == 0, 1.0, scale), torch.zeros_like(scale)
        least, largest = self._least * self.low, self._largest * self.high
        scale = (largest - least) / (of.high - of.low)
        scale = torch.where(scale == 0, 1.0, scale)
        return scale, _rounded(of.low - least / scale).clamp(of.low, of.high)

    def _codes(self, scale: Tensor, zero: Tensor) -> Tensor:
        of = self.range
        return _rounded(self.weight / scale + zero + self.offset).clamp(of.low, of.high)

    def values(self) -> Tensor:
        """``[N, K]`` with gradients."""
        scale, zero = self._scale()
        n, k = self.layer.dense.shape
        out = ((self._codes(scale, zero) - zero) * scale).reshape(n, -1)[:, :k]
        return out.to(self.layer.dense.dtype)

    @torch.no_grad()
    def step(self, rate: float) -> None:
        for p in self.parameters():
            if p.grad is not None:
                p -= rate * p.grad.sign()
                p.grad = None
        self.offset.clamp_(-0.5, 0.5)
        self.low.clamp_(*CLIP)
        self.high.clamp_(*CLIP)

    def state(self) -> list[Tensor]:
        return [p.detach().clone() for p in self.parameters()]

    @torch.no_grad()
    def finish(self, state: list[Tensor]) -> None:
        for p, value in zip(self.parameters(), state, strict=True):
            p.copy_(value)
        n, k = self.layer.dense.shape
        scale, zero = self._scale()
        scale = nonzero_scale(scale, self.range.dtype)
        codes = self._codes(scale, zero).reshape(n, -1)[:, :k]
        grid = Grid(self.range, scale.squeeze(-1), zero.squeeze(-1))
        self.layer.finish(as_weight(codes, grid, self.layer), self.layer.note)


def _rounded(x: Tensor) -> Tensor:
    """Round to the nearest integer; the gradient is that of ``x``."""
    return x + (x.round() - x).detach()


@dataclass(frozen=True)
class AutoRound:
    """Learned rounding, a block at a time.

    Args:
        steps: for each block. rate: of the first step, falling to 0; None: 1 / steps.
        bits: fewer than the scheme stores; None: as many. seed: of the order of batches.
    """

    steps: int = 200
    rate: float | None = None
    bits: int | None = None
    seed: int = 0

    needs_reference = True
    needs_outputs = True

    def quantize(self, stage: CalibrationBlock) -> None:
        """Give every layer of a block its result.

        Args:
            stage: the block.

        Raises:
            ValueError: calibration does not reach a layer, or brings NaN or Inf.
        """
        stage.groups()  # refuses layers that do not run
        wanted = stage.wanted
        assert wanted is not None
        learned = [_Learned(layer, self.bits) for layer in stage.layers]
        nearest = [x.state() for x in learned]
        parameters: Any = stage.module
        with frozen(parameters.parameters()), _computing_with(learned):
            before = _error(stage, learned, wanted)
            self._learn(stage, learned, wanted)
            worse = _error(stage, learned, wanted) > before
        for x, state in zip(learned, nearest, strict=True):
            x.finish(state if worse else x.state())

    def _learn(
        self, block: CalibrationBlock, learned: list[_Learned], wanted: list[Tensor]
    ) -> None:
        """Take steps that become shorter, so that the last state is the one to keep."""
        generator = torch.Generator().manual_seed(self.seed)
        rate = self.rate or 1 / self.steps
        order: list[int] = []
        for step in range(self.steps):
            order = order or torch.randperm(len(wanted), generator=generator).tolist()
            i = order.pop()
            with torch.enable_grad():
                for x in learned:
                    x.layer.values = x.values()
                out = block.run(block.given[i])
                loss = torch.nn.functional.mse_loss(out.float(), wanted[i].float())
                scaled = loss * 1000  # the sign alone counts; half floats stay above 0
            torch.autograd.backward(scaled)
            for x in learned:
                x.step(rate * (1 - step / self.steps))


@torch.no_grad()
def _error(block: CalibrationBlock, learned: list[_Learned], wanted: list[Tensor]) -> float:
    """Sum up the error of the block's outputs as it computes now, over all batches."""
    for x in learned:
        x.layer.values = x.values()
    outputs = block.outputs(block.given)
    return sum(
        float(torch.nn.functional.mse_loss(out.float(), want.float()))
        for out, want in zip(outputs, wanted, strict=True)
    )


@contextmanager
def _computing_with(learned: list[_Learned]) -> Iterator[None]:
    """Let the stand-ins multiply by ``layer.values``."""

    def forward(layer: BlockLayer) -> object:
        def run(input: Tensor) -> Tensor:
            assert layer.values is not None
            return nn.functional.linear(input, layer.values, layer.module.bias)

        return run

    for x in learned:
        x.layer.module.forward = forward(x.layer)  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        for x in learned:
            del x.layer.module.forward
            x.layer.values = None
