"""GPTQ: codes one column at a time, each making up for the errors of those before."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import Tensor

from ..site import Site
from ..stage import Moments, Stage
from .codes import as_weight
from .grid import Grid, Range, search
from .solve import compensated, damped, descended, refitted, towards_dense


@dataclass(frozen=True)
class GPTQ:
    """GPTQ with the largest inputs first and groups that stay where they are, so that nothing is
    gathered at run time.

    Args:
        damp: of the mean of the moments' diagonal, added to it.
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

    def quantize(self, stage: Stage) -> None:
        """Give every layer of a block its result.

        Args:
            stage: the block.

        Raises:
            ValueError: calibration does not reach a layer, or brings NaN or Inf.
        """
        for group in stage.groups():
            moments = stage.moments(group)
            for sites in _alike(group):
                self._together(sites, moments)

    def _together(self, sites: list[Site], moments: Moments) -> None:
        """Layers with the same inputs and the same grid, as one with the rows of all."""
        gram = damped(moments.gram / moments.tokens, self.damp)
        target = torch.cat([site.dense.float() for site in sites])
        if self.correct:
            target = towards_dense(target, gram, moments.cross / moments.tokens, self.correct)
        first = sites[0]
        of = Range.of(first.target.scheme, target.shape[1], first.dense.dtype, self.bits)
        grid = search(target, of, gram.diagonal())
        codes, grid = self._solve(target, grid, gram)
        begin = 0
        for site in sites:
            rows = slice(begin, begin := begin + len(site.dense))
            own = Grid(of, grid.scale[rows], grid.zero[rows])
            site.finish(as_weight(codes[rows], own, site), site.note, moments.gram / moments.tokens)

    def _solve(self, weight: Tensor, grid: Grid, gram: Tensor) -> tuple[Tensor, Grid]:
        codes = compensated(weight, grid, gram)
        for _ in range(self.passes):
            grid = refitted(codes, weight, grid, gram)
            codes = descended(codes, weight, grid, gram)
        return codes, grid


def _alike(group: list[Site]) -> list[list[Site]]:
    """Layers that may be solved as one. A layer whose rows share scales is solved by itself, since
    they are not shared with the rows of another."""
    found: dict[object, list[Site]] = defaultdict(list)
    for site in group:
        by_row = site.target.scheme.weights.strategy in ("channel", "group")
        found[site.target.scheme, site.dense.dtype, None if by_row else site.name].append(site)
    return list(found.values())
