"""fpA_intB_gemm on CUDA at the points of the peer timings, with cuBLAS and aten's int4 GEMM in the
same run: one command for a whole suite of schemes.

    python benchmarks/bench_gemm.py --suite full --out benchmarks/results/gemm_h200.json

All schemes, all their candidates, cuBLAS and aten of one (N, K, M) are replayed in turn, so that
ratios between them do not carry the drift of the clocks. Prints a line for each scheme and point,
then the comparison of targets.py. The file is complete after every point.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from pathlib import Path

import torch
from about import about_run
from references import references
from results import Results, Row, save
from schemes import SUITES, Scheme
from shapes import Point
from suite import Budget, Choice, Selected, Suite, Timings, rows_of
from targets import summary
from timing import measured_ceilings

SETTLE_S = 1.5  # see Suite
HEADER = (
    f"{'scheme':>16} {'N':>5} {'K':>5} {'M':>4} {'us':>8} {'spread':>6} "
    f"{'peer':>5} {'mma':>5} {'cuBLAS':>6} {'aten':>5} {'roof':>5} {'best':>5}  configuration "
    "(best)"
)


def point_lines(rows: list[Row]) -> Iterator[str]:
    """A line for each scheme of one point: ratios of our time to theirs, and the share of the
    roofline."""
    here = Results({}, rows)
    spread = {
        Scheme.of_row(r): (r["us_max"] - r["us_min"]) / r["us"] for r in rows if r["selected"]
    }
    for scheme, times in here.selected.items():
        ((point, us),) = times.items()
        reference = references(here, scheme)[point]
        others = (reference.peer, reference.mma_sync, reference.cublas, here.aten.get(point))
        kernels = here.measured[scheme][point]
        best = min(kernels, key=lambda name: kernels[name])
        peer, mma, cublas, aten = (math.nan if t is None else us / t for t in others)
        name = here.names[scheme][point]
        better = "" if best == name else f" ({best})"
        n, k, m = point
        yield (
            f"{scheme.name:>16} {n:5} {k:5} {m:4} {us:8.2f} {spread[scheme]:6.1%} {peer:5.2f} "
            f"{mma:5.2f} {cublas:6.2f} {aten:5.2f} {here.roofline[scheme][point] / us:5.2f} "
            f"{us / kernels[best]:5.2f}  {name}{better}"
        )


def count_or_all(text: str) -> int | None:
    return None if text == "all" else int(text)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--suite", choices=SUITES, default="full")
    parser.add_argument("--schemes", help="names like w4_g128_fp16,w8_channel_sub_bf16 instead")
    parser.add_argument("--shapes", help="N:K,N:K to restrict to")
    parser.add_argument("--m", help="M,M to restrict to")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--candidates",
        type=count_or_all,
        default=6,
        help="predicted-best configurations to time besides tiles without a split; or: all",
    )
    parser.add_argument(
        "--within",
        type=float,
        default=2.0,
        help="leave out what is predicted to take more than this times the best (inf: nothing)",
    )
    parser.add_argument(
        "--keep",
        type=count_or_all,
        default=2,
        help="fastest configurations to write besides the selected one; or: all",
    )
    parser.add_argument(
        "--budget-s", type=float, default=math.inf, help="stop before the point that may exceed it"
    )
    parser.add_argument("--commit", help="for meta, where there is no git")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    budget = Budget(args.budget_s)
    torch.manual_seed(0)
    names = args.schemes.split(",") if args.schemes else None
    schemes = [Scheme.parse(name) for name in names] if names else SUITES[args.suite]
    shapes = {tuple(map(int, s.split(":"))) for s in args.shapes.split(",")} if args.shapes else ()
    ms = {int(m) for m in args.m.split(",")} if args.m else ()
    points = sorted(
        p
        for p in {p for scheme in schemes for p in scheme.points()}
        if (not shapes or p[:2] in shapes) and (not ms or p[2] in ms)
    )
    choice = Choice(args.candidates, args.within, args.keep)
    ceilings = measured_ceilings()
    about = {**about_run(ceilings, args.commit), "schemes": [s.name for s in schemes]}
    print(f"{about['gpu']}: {ceilings}; {len(points)} points, {len(schemes)} schemes\n{HEADER}")
    rows: list[Row] = []

    def record(point: Point, selected: Selected, timings: Timings) -> None:
        new = list(rows_of(point, selected, timings, ceilings, choice.keep))
        rows.extend(new)
        if args.out:
            save(args.out, about, rows)
        print("\n".join(point_lines(new)), flush=True)

    left = Suite(schemes, points, choice, args.rounds, SETTLE_S).run(budget, record)
    print("\n".join(summary(Results(about, rows))))
    if left:
        print(f"not measured, --budget-s {args.budget_s:g}: {len(left)} points, from {left[0]}")
    print(f"{budget.clock() - budget.start:.0f} s")


if __name__ == "__main__":
    main()
