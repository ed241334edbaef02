"""scaled_mm and scaled_mm_azp on CUDA at the points of the W8A8 peer timings, with torch._int_mm,
torch._scaled_mm and cuBLAS in the same run, and the quantizers.

    python benchmarks/bench_scaled_mm.py --out benchmarks/results/scaled_h200.json
    python benchmarks/bench_scaled_mm.py --all-candidates --out all.json    # to fit the cost model

As bench_gemm.py: graphs over rotated weights, everything of one (N, K, M) replayed in turn. Prints
a line for each point, then the comparison of scaled_targets.py. The file is complete after every
point.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from about import about_run
from results import save
from scaled_operands import quantizer_calls
from scaled_results import (
    AZP,
    AZP_PER_TOKEN,
    CUBLAS,
    FP8_BF16,
    FP8_FP16,
    INT_MM,
    INT_MM_SCALED,
    LAYER,
    OURS,
    QUANTIZERS,
    TORCH_FP8,
    Row,
    ScaledResults,
    Variant,
)
from scaled_suite import Choice, ScaledSuite, rows_of
from scaled_targets import summary
from shapes import Point, peer_rows
from suite import Budget, graphs_of_a_point
from timing import Graph, Timing, measured_ceilings, time_interleaved

OTHERS: tuple[Variant, ...] = (AZP, AZP_PER_TOKEN, INT_MM, INT_MM_SCALED, CUBLAS, LAYER)
FP8_ON_HOPPER = (FP8_BF16, FP8_FP16, TORCH_FP8)
HEADER = (
    f"{'N':>6} {'K':>5} {'M':>4} {'us':>8} {'spread':>6} {'intmm':>5} {'+scal':>5} {'azp':>5} "
    f"{'token':>5} {'cuBLAS':>6} {'layer':>5} {'fp8':>5} {'roof':>5} {'best':>5}  configuration "
    "(best)"
)


def point_line(rows: list[Row]) -> str:
    """Our time over theirs, the azp variants over ours, the share of the roofline."""
    here = ScaledResults({}, rows)
    ((point, us),) = here.times[OURS].items()
    n, k, m = point

    def ratio(of: Variant, over: Variant) -> float:
        return here.ratios(of, over).get(point, math.nan)

    kernels = here.candidates[point]
    best = min(kernels, key=lambda name: kernels[name])
    spread = next((r["us_max"] - r["us_min"]) / r["us"] for r in rows if r["selected"])
    better = "" if best == here.names[point] else f" ({best})"
    return (
        f"{n:6} {k:5} {m:4} {us:8.2f} {spread:6.1%} {ratio(OURS, INT_MM):5.2f} "
        f"{ratio(OURS, INT_MM_SCALED):5.2f} {ratio(AZP, OURS):5.2f} "
        f"{ratio(AZP_PER_TOKEN, OURS):5.2f} {ratio(OURS, CUBLAS):6.2f} {ratio(LAYER, CUBLAS):5.2f} "
        f"{ratio(FP8_BF16, TORCH_FP8):5.2f} {here.roofline[point] / us:5.2f} "
        f"{us / kernels[best]:5.2f}  {here.names[point]}{better}"
    )


def quantizer_rows(
    points: list[Point], rounds: int, ceilings: Mapping[str, float]
) -> Iterator[Row]:
    """The quantizers on the activations of the points; N is 0."""
    for k, m in sorted({(k, m) for _, k, m in points}):
        graph = graphs_of_a_point()
        graphs = {v: graph(quantizer_calls(v, k, m)) for v in QUANTIZERS}
        yield from rows_of((0, k, m), "", time_interleaved(graphs, rounds), ceilings)


def int8_ceiling() -> float:
    """TOP/s of torch._int_mm on a large square problem."""
    size = 8192
    a, b = (
        torch.randint(-128, 128, (size, size), device="cuda", dtype=torch.int8) for _ in range(2)
    )
    graph = Graph([lambda: torch._int_mm(a, b.t())] * 8)
    return round(2e-6 * size**3 / time_interleaved({"dense": graph}, 7)["dense"].us, 1)


def selected_points(shapes: str | None, ms: str | None) -> list[Point]:
    wanted = {tuple(map(int, s.split(":"))) for s in shapes.split(",")} if shapes else None
    rows = {int(m) for m in ms.split(",")} if ms else None
    return sorted(
        p
        for p in peer_rows("peers_w8a8_h200")
        if (wanted is None or p[:2] in wanted) and (rows is None or p[2] in rows)
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--shapes", help="N:K,N:K to restrict to")
    parser.add_argument("--m", help="M,M to restrict to")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument(
        "--candidates", type=int, default=6, help="predicted-best configurations to time"
    )
    parser.add_argument(
        "--all-candidates", action="store_true", help="time all, and nothing but them and _int_mm"
    )
    parser.add_argument(
        "--within",
        type=float,
        default=3.0,
        help="leave out what is predicted to take more than this times the best (inf: nothing)",
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
    others = OTHERS
    if args.all_candidates:
        others = (INT_MM,)
    elif torch.cuda.get_device_capability() >= (9, 0):
        others += FP8_ON_HOPPER
    choice = Choice(None if args.all_candidates else args.candidates, args.within)
    points = selected_points(args.shapes, args.m)
    ceilings = {**measured_ceilings(), "dense_int8_tops": int8_ceiling()}
    about = about_run(ceilings, args.commit)
    print(f"{about['gpu']}: {ceilings}; {len(points)} points\n{HEADER}")
    rows: list[Row] = []

    def keep(new: list[Row]) -> None:
        rows.extend(new)
        if args.out:
            save(args.out, about, rows)

    def record(point: Point, selected: str, timings: Mapping[Variant, Timing]) -> None:
        new = list(rows_of(point, selected, timings, ceilings))
        keep(new)
        print(point_line(new), flush=True)

    left = ScaledSuite(points, choice, others, args.rounds).run(budget, record)
    if not args.all_candidates and not left:
        keep(list(quantizer_rows(points, args.rounds, ceilings)))
    print("\n".join(summary(ScaledResults(about, rows))))
    if left:
        print(f"not measured, --budget-s {args.budget_s:g}: {len(left)} points, from {left[0]}")
    print(f"{budget.clock() - budget.start:.0f} s")


if __name__ == "__main__":
    main()
