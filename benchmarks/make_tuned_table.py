"""Writes the tuned table that ships for a GPU (mixed_gemm/selection/tuned) from results of
`python -m benchmarks gemm --candidates all --keep all`, and of `floats`: the fastest of our
configurations at each measured point.

    python -m benchmarks.make_tuned_table gemm.json --sm 90 --sms 132
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mixed_gemm.ops.problem import integer_weight
from mixed_gemm.selection import tables

from .old_rows import row_of
from .row import Row
from .timed import FLOAT_GEMM, GEMM


def fastest(rows: Iterable[Row]) -> list[tables.Point]:
    points: dict[tuple[Any, ...], tables.Point] = {}
    for row in rows:
        if row.op not in (GEMM, FLOAT_GEMM) or row.bits is None or row.group_size is None:
            continue
        point = tables.Point(
            dtype=row.dtype,
            weight=row.weight or integer_weight(row.bits),
            group_size=row.group_size,
            zeros=row.zero_mode is not None,
            n=row.N,
            k=row.K,
            m=row.M,
            config=row.kernel,
            us=row.us,
        )
        if point.problem not in points or point.us < points[point.problem].us:
            points[point.problem] = point
    return list(points.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--sm", type=int, required=True)
    parser.add_argument("--sms", type=int, required=True)
    args = parser.parse_args()
    files = [json.loads(path.read_text()) for path in args.results]
    names = {file["meta"]["gpu"] for file in files}
    if len(names) != 1:
        parser.error(f"the results are of different GPUs: {', '.join(sorted(names))}")
    gpu = tables.Gpu(names.pop(), args.sm, args.sms)
    points = fastest(row_of(row) for file in files for row in file["rows"])
    path = tables.path_of(gpu, tables.SHIPPED)
    path.parent.mkdir(exist_ok=True)
    tables.write(path, gpu, points)
    path.chmod(0o644)
    print(f"{path}: {len(points)} points")


if __name__ == "__main__":
    main()
