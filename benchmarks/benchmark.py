"""The base of a file of ops/: the problems of one op, and the cases that are timed for each."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from mixed_gemm.selection.timing import Call

from .row import Point
from .schemes import Scheme


@dataclass(frozen=True)
class Case:
    """One thing that is timed at a point, and that a row is written of. Configurations of one op on
    one scheme are a contest: what is clearly behind the best is not timed to the end.

    Attributes:
        op, scheme, kernel, selected: as in row.Row.
        calls: alike, one for each copy of the weight.
        nbytes: what must cross the memory bus once; None: what the scheme says.
        arithmetic: the dtype that is multiplied; None: that of the activations.
        always: timed to the end and written, however slow; so is what is selected.
    """

    op: str
    scheme: Scheme
    calls: Sequence[Call]
    kernel: str = ""
    selected: bool = False
    nbytes: float | None = None
    arithmetic: str | None = None
    always: bool = False

    @property
    def contest(self) -> tuple[str, Scheme]:
        return self.op, self.scheme


@dataclass(frozen=True)
class Effort:
    """How much is timed.

    Attributes:
        rounds: samples of each case, at most.
        candidates: predicted-best configurations of ours; None for all.
        within: leave out those predicted to take more than this times the best.
        keep: how many of the fastest to write besides the selected one; None for all.
    """

    rounds: int
    candidates: int | None = 6
    within: float = 2.0
    keep: int | None = None

    def chosen(self, selected: str, predicted: Mapping[str, float | None]) -> list[str]:
        """Choose the configurations to time, the selected one first, among those that the planner
        lists with the microseconds that it predicts. None is as good as the best prediction."""
        known = [us for us in predicted.values() if us is not None]
        limit = self.within * min(known, default=math.inf)
        names = [name for name, us in predicted.items() if us is None or us <= limit]
        return list(dict.fromkeys([selected, *names[: self.candidates]]))


class Benchmark:
    """One op. A file of ops/ overrides what is particular.

    Attributes:
        name: as the command takes it; the first line of the docstring is its help.
        effort: by default.
        settle_s: seconds to wait before each weight on a GPU.
    """

    name: ClassVar[str]
    effort: ClassVar[Effort]
    settle_s: ClassVar[float] = 0.0

    def __init__(self, device: torch.device, options: argparse.Namespace) -> None:
        """Take the options: ``options`` are what add_arguments() asked for."""
        self.device, self.options = device, options

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        """Add options of its own."""
        parser.add_argument("--shapes", help="N:K,N:K instead of those of the benchmark")
        parser.add_argument("--m", help="M,M instead of those of the benchmark")

    def all_points(self) -> Iterable[Point]:
        """Return the points where it is measured when nothing else is asked for."""
        raise NotImplementedError

    def points(self) -> list[Point]:
        """Return the points where it is measured: all, or the shapes and M that were asked for."""
        known = sorted(self.all_points())
        asked = self.options
        if not (asked.shapes or asked.m):
            return known
        shapes = {(p.n, p.k) for p in known}
        if asked.shapes:
            shapes = {(int(n), int(k)) for n, k in (x.split(":") for x in asked.shapes.split(","))}
        ms = {p.m for p in known}
        if asked.m:
            ms = {int(m) for m in asked.m.split(",")}
        return sorted(Point(n, k, m) for n, k in shapes for m in ms)

    def operands(self, point: Point) -> Any:
        """Make the tensors of a weight; points that share N, K and layer share them."""
        raise NotImplementedError

    def cases(self, operands: Any, point: Point, effort: Effort) -> Iterator[Case]:
        """The cases that are timed in turns at one point."""
        raise NotImplementedError

    def known_us(self, point: Point, scheme: Scheme) -> Mapping[str, float]:
        """Return times of others that were measured elsewhere, to print beside ours."""
        return {}
