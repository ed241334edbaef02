"""Results files: a JSON object of `meta` and `rows` (format: docs/speed.md), one row a line: a
diff shows which timings moved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from schemes import Scheme
from shapes import Point

OURS, CUBLAS, ATEN = "fpA_intB_gemm", "cublas", "aten_int4"
Row = dict[str, Any]


def save(path: Path, meta: dict[str, Any], rows: list[Row]) -> None:
    """Replaces `path` in one step: a run that is killed leaves the rows of its last full point."""
    lines = ",\n".join(json.dumps(row) for row in rows)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(f'{{\n"meta": {json.dumps(meta)},\n"rows": [\n{lines}\n]\n}}\n')
    partial.replace(path)


class Results:
    """The rows of one or several files, by what they are.

    Attributes:
        meta: of the first file.
        selected: scheme -> point -> us of the configuration that plan() picks.
        names: scheme -> point -> that configuration.
        measured: scheme -> point -> configuration -> us.
        roofline: scheme -> point -> us.
        cublas: dtype -> point -> us.
        aten: point -> us of aten::_weight_int4pack_mm (bf16, group 128).
    """

    def __init__(self, meta: dict[str, Any], rows: list[Row]) -> None:
        self.meta = meta
        self.selected: dict[Scheme, dict[Point, float]] = {}
        self.measured: dict[Scheme, dict[Point, dict[str, float]]] = {}
        self.roofline: dict[Scheme, dict[Point, float]] = {}
        self.cublas: dict[str, dict[Point, float]] = {}
        self.aten: dict[Point, float] = {}
        self.names: dict[Scheme, dict[Point, str]] = {}
        for row in rows:
            self._add(row)

    @classmethod
    def load(cls, *paths: Path) -> Results:
        """Where two files measured the same, the earlier one counts."""
        data = [json.loads(path.read_text()) for path in paths]
        return cls(data[0]["meta"], [row for part in data for row in part["rows"]])

    def _add(self, row: Row) -> None:
        point: Point = row["N"], row["K"], row["M"]
        us = row["us"]
        if row["op"] == CUBLAS:
            self.cublas.setdefault(row["dtype"], {}).setdefault(point, us)
        elif row["op"] == ATEN:
            self.aten.setdefault(point, us)
        elif row["op"] == OURS:
            scheme = Scheme.of_row(row)
            self.measured.setdefault(scheme, {}).setdefault(point, {}).setdefault(row["kernel"], us)
            self.roofline.setdefault(scheme, {}).setdefault(point, row["roofline_us"])
            if row["selected"]:
                self.selected.setdefault(scheme, {}).setdefault(point, us)
                self.names.setdefault(scheme, {}).setdefault(point, row["kernel"])
        else:
            raise ValueError(f"a row's op must be {OURS}, {CUBLAS} or {ATEN}, got {row['op']!r}")
