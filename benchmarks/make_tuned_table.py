"""Writes the tuned table that ships for a GPU (mixed_gemm/selection/tuned) from results of
`python -m benchmarks gemm --candidates all --keep all`, and of `floats`: the fastest of our
configurations at each measured point.

    python -m benchmarks.make_tuned_table gemm.json --sm 90 --sms 132
    python -m benchmarks.make_tuned_table floats.json --sm 90 --sms 132 --add
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mixed_gemm.ops.problem import integer_weight
from mixed_gemm.selection import tables

from .old_rows import row_of
from .row import Row
from .timed import FLOAT_GEMM, GEMM


def candidates(file: dict[str, Any]) -> Iterator[Row]:
    """The rows of a file that were candidates. Beside floats, integers have their choice alone."""
    rows = [row_of(row) for row in file["rows"]]
    op = FLOAT_GEMM if any(row.op == FLOAT_GEMM for row in rows) else GEMM
    return (row for row in rows if row.op == op)


def fastest(rows: Iterable[Row]) -> list[tables.Point]:
    points: dict[tuple[Any, ...], tables.Point] = {}
    for row in rows:
        if row.bits is None or row.group_size is None:
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
    parser.add_argument(
        "--add", action="store_true",
        help="keep the lines of the table for problems that the results do not have",
    )  # fmt: skip
    args = parser.parse_args()
    files = [json.loads(path.read_text()) for path in args.results]
    names = {file["meta"]["gpu"] for file in files}
    if len(names) != 1:
        parser.error(f"the results are of different GPUs: {', '.join(sorted(names))}")
    gpu = tables.Gpu(names.pop(), args.sm, args.sms)
    points = fastest(row for file in files for row in candidates(file))
    path = tables.path_of(gpu, tables.SHIPPED)
    if args.add:
        measured = {point.problem for point in points}
        points += [x for x in tables.read(path)[1] if x.problem not in measured]
    path.parent.mkdir(exist_ok=True)
    tables.write(path, gpu, points)
    path.chmod(0o644)
    print(f"{path}: {len(points)} points")


if __name__ == "__main__":
    main()
