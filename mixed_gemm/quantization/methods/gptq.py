"""GPTQ: codes one column at a time, each making up for the errors of those before."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import Tensor

from ..block import CalibrationBlock, InputStatistics
from ..block_layer import BlockLayer
from .codes import as_weight
from .grid import Grid, Range
from .search import search
from .solve import compensated, damped, descended, refitted, towards_dense


@dataclass(frozen=True)
class GPTQ:
    """GPTQ with the largest inputs first and groups that stay where they are, so that nothing is
    gathered at run time.

    Args:
        damp: share of the mean of the Hessian's diagonal that is added to the diagonal.
        correct: how much of the error that the quantized blocks before bring in is made up for,
            0..1.
        passes: of descent on codes and scales after GPTQ; each makes the error smaller.
        bits: fewer than the scheme stores; None: as many.
    """

    damp: float = 0.01
    correct: float = 0.5
    passes: int = 3
    bits: int | None = None

    needs_outputs = False

    @property
    def needs_reference(self) -> bool:
        """Whether the dense model runs beside the quantized one."""
        return self.correct > 0

    def quantize(self, stage: CalibrationBlock) -> None:
        """Give every layer of a block its result.

        Args:
            stage: the block.

        Raises:
            ValueError: calibration does not reach a layer, or brings NaN or Inf.
        """
        for group, statistics in stage.statistics(stage.groups()):
            for layers in _alike(group):
                self._together(layers, statistics)

    def _together(self, layers: list[BlockLayer], statistics: InputStatistics) -> None:
        """Quantize layers with the same inputs and the same grid, as one layer with the rows of
        all."""
        gram = damped(statistics.gram / statistics.tokens, self.damp)
        target = torch.cat([layer.dense.float() for layer in layers])
        if self.correct:
            target = towards_dense(target, gram, statistics.cross / statistics.tokens, self.correct)
        first = layers[0]
        of = Range.of(first.target.scheme, target.shape[1], first.dense.dtype, self.bits)
        grid = search(target, of, gram.diagonal())
        codes, grid = self._solve(target, grid, gram)
        begin = 0
        for layer in layers:
            rows = slice(begin, begin := begin + len(layer.dense))
            layer.finish(
                as_weight(codes[rows], grid.of_rows(rows), layer),
                layer.note,
                statistics.gram / statistics.tokens,
            )

    def _solve(self, weight: Tensor, grid: Grid, gram: Tensor) -> tuple[Tensor, Grid]:
        codes = compensated(weight, grid, gram)
        for _ in range(self.passes):
            grid = refitted(codes, weight, grid, gram)
            codes = descended(codes, weight, grid, gram)
        return codes, grid


def _alike(group: list[BlockLayer]) -> list[list[BlockLayer]]:
    """Group layers that may be solved as one. A layer whose rows share scales is solved by itself,
    since they are not shared with the rows of another."""
    found: dict[object, list[BlockLayer]] = defaultdict(list)
    for layer in group:
        by_row = layer.target.scheme.weights.strategy in ("channel", "group")
        found[layer.target.scheme, layer.dense.dtype, None if by_row else layer.name].append(layer)
    return list(found.values())
