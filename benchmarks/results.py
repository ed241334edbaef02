"""The rows of one or several results files, by what they are of. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .old_rows import row_of
from .row import Point, Row
from .schemes import Scheme
from .timed import Timed

Times = dict[Point, float]


@dataclass(frozen=True)
class Regret:
    """The distance of the planner's choice: selected / best measured, and which that is."""

    ratio: float
    best: str


class Results:
    """Microseconds. Where two rows are of the same, the earlier one counts.

    Attributes:
        meta: of the first file.
        times: op and scheme -> point -> us of what runs when nobody forces a configuration.
        names: the same, the configuration that the planner picks.
        measured: op and scheme -> point -> configuration -> us.
        roofline: op and scheme -> point -> us.
    """

    def __init__(self, meta: dict[str, Any], rows: Iterable[Row], *, least: bool = False) -> None:
        """``least``: the least of the samples instead of their median; a busy machine disturbs it
        less."""
        self.meta = meta
        self.times: dict[Timed, Times] = {}
        self.names: dict[Timed, dict[Point, str]] = {}
        self.measured: dict[Timed, dict[Point, dict[str, float]]] = {}
        self.roofline: dict[Timed, Times] = {}
        for row in rows:
            self._add(row, row.us_min if least else row.us)

    @classmethod
    def load(cls, *paths: Path, least: bool = False) -> Results:
        files = [json.loads(path.read_text()) for path in paths]
        rows = (row_of(row) for file in files for row in file["rows"])
        return cls(files[0]["meta"], rows, least=least)

    def _add(self, row: Row, us: float) -> None:
        timed, point = Timed(row.op, Scheme.of_row(row)), row.point
        if row.roofline_us is not None:
            self.roofline.setdefault(timed, {}).setdefault(point, row.roofline_us)
        if row.kernel:
            kernels = self.measured.setdefault(timed, {}).setdefault(point, {})
            kernels.setdefault(row.kernel, us)
        if row.selected:
            self.names.setdefault(timed, {}).setdefault(point, row.kernel)
        if row.selected or not row.kernel:
            self.times.setdefault(timed, {}).setdefault(point, us)

    def of(self, timed: Timed) -> Times:
        """Return its times; empty where it was not measured."""
        found: Times = {}
        for one in self.matching(timed):
            if timed.kernel:
                kernels = self.measured.get(one, {}).items()
                here = {p: us[timed.kernel] for p, us in kernels if timed.kernel in us}
            else:
                here = self.times.get(one, {})
            found = {**here, **found}
        return found

    def matching(self, timed: Timed) -> list[Timed]:
        """The measured times of an op, for one scheme or for all."""
        known = dict.fromkeys((*self.times, *self.measured))
        return [one for one in known if one.op == timed.op and timed.scheme in (None, one.scheme)]

    def schemes_of(self, op: str) -> list[Scheme]:
        """Return the schemes in which ``op`` was measured, in the order of the file."""
        return [one.scheme for one in self.times if one.op == op and one.scheme is not None]

    def regrets(self, timed: Timed) -> dict[Point, Regret]:
        """Return the choices at the points where configurations were measured beside the
        planner's."""
        found: dict[Point, Regret] = {}
        for one in self.matching(timed):
            for point, us in self.times.get(one, {}).items():
                kernels = self.measured.get(one, {}).get(point, {})
                if kernels:
                    best = min(kernels, key=lambda name: kernels[name])
                    found[point] = Regret(us / min(us, kernels[best]), best)
        return found


def over(times: Times, others: Mapping[Point, float]) -> Times:
    """Return ratios of times at the points that both have, in order."""
    return {point: times[point] / others[point] for point in sorted(times) if point in others}
