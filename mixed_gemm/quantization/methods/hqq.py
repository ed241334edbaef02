"""HQQ, half-quadratic quantization (Badri and Shaji 2023, https://mobiusml.github.io/hqq_blog):
zero points and scales without data, for weights with few large errors rather than many small ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...weights.rounding import nonzero_scale
from ...weights.tensor import QuantizedTensor
from ..block_layer import BlockLayer
from ..select import Target
from .base import Defaults
from .codes import as_weight
from .grid import Grid, Range, grouped
from .rounding import RoundToNearest
from .search import unclipped, whole_range, widest


def _shrunk(x: Tensor, beta: float, power: float) -> Tensor:
    """Return the number nearest to ``x`` with a small sum of abs()^power: it shrinks small errors
    most."""
    size = x.abs()
    return x.sign() * torch.relu(size - size.clamp(min=1e-8).pow(power - 1) / beta)


@dataclass(frozen=True)
class HQQ(Defaults):
    """A method that alternates between the errors that may be large and the zero points (without
    them, the scales) that fit the rest.

    Args:
        steps: at most. beta, growth: the pull between the two, and by what it grows in a step.
        power: below 1, of the errors' sizes that are summed.
        bits: fewer than the scheme stores; None: as many.
    """

    steps: int = 20
    beta: float = 10.0
    growth: float = 1.01
    power: float = 0.7
    bits: int | None = None

    def prepare(
        self, model: nn.Module, targets: Mapping[str, Target], calibration: Iterable[Any] | None
    ) -> None:
        """Refuse calibration data; there is nothing to prepare.

        Args:
            model: any. targets: name -> layer. calibration: None.

        Raises:
            ValueError: there is calibration data, which would be ignored.
        """
        RoundToNearest().prepare(model, targets, calibration)

    def weight(self, name: str, target: Target) -> QuantizedTensor:
        """Round the weight of one layer; a filter is rounded to nearest.

        Args:
            name: of the layer. target: the layer and its scheme.

        Raises:
            ValueError: the weight holds NaN or Inf.
        """
        if isinstance(target.layer, nn.Conv2d):
            return RoundToNearest().weight(name, target)
        layer = BlockLayer(name, target)
        weight = layer.dense.float()
        of = Range.of(target.scheme, weight.shape[1], layer.dense.dtype, self.bits)
        grid = self.grid(weight, of, target.scheme.zero_mode == "add")
        return as_weight(grid.codes(weight), grid, layer)

    def grid(self, weight: Tensor, of: Range, real_zeros: bool = False) -> Grid:
        """Find the scales and zero points of a weight.

        Args:
            weight: float32 ``[N, K]``. of: its codes.
            real_zeros: whether zero points need be no codes, which only zero_mode "add" has a
                place for.
        """
        grid = whole_range(weight, of) if real_zeros else unclipped(weight, of)
        x = grouped(weight, of.group)
        inside = grouped(torch.ones_like(weight[:1]), of.group)  # 0 in the padding
        scale, zero, beta = grid.scale[..., None], grid.zero[..., None], self.beta
        best = (scale, zero)
        least = torch.full_like(scale, torch.inf)
        count = inside.sum(-1, keepdim=True)
        for _ in range(self.steps):
            codes = torch.round(x / scale + zero).clamp(of.low, of.high)
            error = (x - (codes - zero) * scale) * inside
            size = error.abs().pow(self.power).sum(-1, keepdim=True)
            better = size < least
            best = (torch.where(better, scale, best[0]), torch.where(better, zero, best[1]))
            least = torch.where(better, size, least)
            wanted = x - _shrunk(error, beta, self.power)
            if of.has_zeros:
                zero = ((codes - wanted / scale) * inside).sum(-1, keepdim=True) / count
                zero = zero.clamp(of.low, of.high)
            else:
                fitted = (codes * wanted).sum(-1, keepdim=True) / codes.square().sum(
                    -1, keepdim=True
                ).clamp(min=1)
                scale = nonzero_scale(fitted, of.dtype)
            beta *= self.growth
        scale, zero = best
        if of.has_zeros and not real_zeros:  # rounded, they would clip one end of the range
            wide = torch.maximum(scale, widest(x, zero.round(), of))
            fits = wide.isfinite()  # else a zero point at an end has weights beyond it
            scale = torch.where(fits, wide, grid.scale[..., None])
            zero = torch.where(fits, zero.round(), grid.zero[..., None])
        return Grid(of, scale.squeeze(-1), zero.squeeze(-1))

    def note(self, name: str) -> str:
        """Return an empty note, whatever the ``name``."""
        return ""
