"""A row of a results file, the same for every benchmark, and the file: a JSON object of ``meta``
and ``rows``, one row a line, so that a diff shows which timings moved. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple


class Point(NamedTuple):
    """A product ``[M, K] @ [N, K].T``. A convolution is one, too: N output channels, K
    taps times input channels, M output pixels of all images; and several layers may have the same.

    Attributes:
        layer: the geometry of a convolution, as ops/qconv2d.py writes it; else empty.
    """

    n: int
    k: int
    m: int
    layer: str = ""

    def fields(self) -> dict[str, Any]:
        """Return the fields as a row has them."""
        return dict(zip(("N", "K", "M", "layer"), self, strict=True))

    def __str__(self) -> str:
        return self.layer or f"{self.n}x{self.k}@{self.m}"


@dataclass(frozen=True)
class Row:
    """The time of one call of one op.

    Attributes:
        op: what was called: an op of ours, ``F.linear``, ``aten``, ``torch._int_mm``, ...
        kernel: the configuration of ours that was forced; empty where the op chose, or is not ours.
        selected: whether that is the one which the planner picks.
        dtype: of the activations as ``op`` takes them.
        N, K, M: see Point.
        us, us_min, us_max: microseconds of one call, the median of the samples and their extremes.
        roofline_us: the larger of the time that the bytes need at the read bandwidth and the
            multiplications at the dense rate, both measured in the same run; None in older files.
        bits: of an element of the weight; None where there is no weight.
        group_size: input channels that share a scale within the sums, -1 for all of them; None
            where no scale is applied within them.
        zero_mode: "sub", "add" or None.
        out_dtype: of the result, where it is not ``dtype``.
        weight: the type of the weight's codes where these are no integers ("e2m1", "nf4", ...).
        layer: see Point.
    """

    op: str
    kernel: str
    selected: bool
    dtype: str
    N: int
    K: int
    M: int
    us: float
    us_min: float
    us_max: float
    roofline_us: float | None = None
    bits: int | None = None
    group_size: int | None = None
    zero_mode: str | None = None
    out_dtype: str | None = None
    weight: str | None = None
    layer: str = ""

    @property
    def point(self) -> Point:
        return Point(self.N, self.K, self.M, self.layer)

    def to_json(self) -> dict[str, Any]:
        """Return the fields that say something: neither None nor empty, but for ``kernel``."""
        fields = asdict(self).items()
        return {name: x for name, x in fields if name == "kernel" or x not in (None, "")}


def save(path: Path, meta: Mapping[str, Any], rows: Iterable[Row]) -> None:
    """Replace ``path`` in one step: a run that is killed leaves the rows of its last full point."""
    lines = ",\n".join(json.dumps(row.to_json()) for row in rows)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(f'{{\n"meta": {json.dumps(meta)},\n"rows": [\n{lines}\n]\n}}\n')
    partial.replace(path)
