"""The benchmarks: for every point of an op all that is to be compared, timed in turns.

    python -m benchmarks gemm --suite full --out benchmarks/results/gemm_h200.json
    python -m benchmarks scaled_mm --candidates all --within inf    # to fit its cost model
    python -m benchmarks gemm --device cpu --out cpu.json

On a GPU by replay of CUDA graphs over copies of the weight that no cache holds, so that ratios
carry neither the launches nor the drift of the clocks; on the CPU call by call over such copies.
Prints a line for each scheme and point, then the comparison of targets.py. The file is complete
after every point.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import torch

from mixed_gemm.selection.timing import Timing, time_interleaved, timers_of

from . import ceilings
from .about import about_run
from .benchmark import Benchmark, Case, Effort
from .budget import Budget
from .lines import HEADER, lines_of
from .ops import BENCHMARKS
from .ratios import on_cpu
from .results import Results
from .row import Point, Row, save
from .targets import summary


def row_of(point: Point, case: Case, timing: Timing, reached: Mapping[str, float]) -> Row:
    scheme, digits = case.scheme, 2
    nbytes = scheme.traffic_bytes(point) if case.nbytes is None else case.nbytes
    operations = 2.0 * point.m * point.n * point.k
    roofline = ceilings.roofline_us(reached, nbytes, operations, case.arithmetic or scheme.dtype)
    return Row(
        op=case.op,
        kernel=case.kernel,
        selected=case.selected,
        us=round(timing.us, digits),
        us_min=round(timing.us_min, digits),
        us_max=round(timing.us_max, digits),
        roofline_us=round(roofline, digits),
        **point.fields(),
        **dataclasses.asdict(scheme),
    )


def written(cases: Sequence[Case], timings: Sequence[Timing], keep: int | None) -> list[int]:
    """Which of them rows are written of: all but the configurations that are neither selected nor
    among the ``keep`` fastest of their contest."""
    ranked: dict[object, list[int]] = {}
    for i in sorted(range(len(cases)), key=lambda i: timings[i].us):
        if cases[i].kernel:
            ranked.setdefault(cases[i].contest, []).append(i)
    fastest = {i for contest in ranked.values() for i in contest[:keep]}
    return [
        i for i, c in enumerate(cases) if not c.kernel or c.selected or c.always or i in fastest
    ]


def measure(
    benchmark: Benchmark,
    cases: Sequence[Case],
    point: Point,
    effort: Effort,
    reached: Mapping[str, float],
) -> list[Row]:
    """Make the rows of one point."""
    numbered = dict(enumerate(cases))
    times = time_interleaved(
        timers_of({i: case.calls for i, case in numbered.items()}, benchmark.device),
        effort.rounds,
        {i: case.contest for i, case in numbered.items() if case.kernel},
        {i for i, case in numbered.items() if case.selected or case.always},
    )
    timings = [times[i] for i in numbered]
    return [
        row_of(point, cases[i], timings[i], reached) for i in written(cases, timings, effort.keep)
    ]


def run(
    benchmark: Benchmark,
    effort: Effort,
    reached: Mapping[str, float],
    budget: Budget,
    record: Callable[[Point, list[Row]], None],
) -> list[Point]:
    """Hand the rows of every point to ``record`` when it is done. Return the points that the budget
    left out."""
    left = sorted(benchmark.points())
    for _, group in groupby(list(left), key=lambda p: (p.n, p.k, p.layer)):
        operands = None
        for point in group:
            if not budget.has_room():
                return left
            if operands is None:
                operands = benchmark.operands(point)
                if benchmark.device.type == "cuda":
                    time.sleep(benchmark.settle_s)
            cases = list(benchmark.cases(operands, point, effort))
            record(point, measure(benchmark, cases, point, effort, reached))
            left.remove(point)
        del operands, cases  # before the next ones are made
    return left


def count_or_all(text: str) -> int | None:
    return None if text == "all" else int(text)


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=(__doc__ or "").split("\n\n")[0]
    )
    commands = parser.add_subparsers(required=True, metavar="OP")
    for benchmark in BENCHMARKS:
        text = (benchmark.__doc__ or "").split("\n\n")[0]
        command = commands.add_parser(benchmark.name, help=text, description=text)
        add_arguments(command, benchmark.effort)
        benchmark.add_arguments(command)
        command.set_defaults(benchmark=benchmark)
    return parser.parse_args(argv)


def add_arguments(parser: argparse.ArgumentParser, effort: Effort) -> None:
    """Add the options that all benchmarks take."""
    parser.add_argument("--device", type=torch.device, default=torch.device("cuda"))
    parser.add_argument("--threads", type=int, help="torch.set_num_threads")
    parser.add_argument("--rounds", type=int, default=effort.rounds)
    for name, text in (
        ("candidates", "predicted-best configurations to time; or: all"),
        ("keep", "fastest configurations to write besides the selected one; or: all"),
    ):
        default = getattr(effort, name)
        parser.add_argument(f"--{name}", type=count_or_all, default=default, help=text)
    parser.add_argument(
        "--within",
        type=float,
        default=effort.within,
        help="leave out what is predicted to take more than this times the best (inf: nothing)",
    )
    parser.add_argument(
        "--budget-s", type=float, default=math.inf, help="stop before the point that may exceed it"
    )
    parser.add_argument("--commit", help="for meta, where there is no git")
    parser.add_argument("--out", type=Path)


def effort_of(args: argparse.Namespace) -> Effort:
    return Effort(args.rounds, args.candidates, args.within, args.keep)


def main(argv: Sequence[str] | None = None) -> None:
    args = arguments(argv)
    budget = Budget(args.budget_s)
    torch.manual_seed(0)
    random.seed(0)
    if args.threads:
        torch.set_num_threads(args.threads)
    effort = effort_of(args)
    benchmark = args.benchmark(args.device, args)
    reached = ceilings.measured(args.device)
    about = {**about_run(args.device, reached, args.commit), "benchmark": benchmark.name}
    print(f"{about.get('gpu') or about['cpu']}: {reached}; {len(benchmark.points())} points")
    print(HEADER)
    rows: list[Row] = []

    def record(point: Point, new: list[Row]) -> None:
        rows.extend(new)
        if args.out:
            save(args.out, about, rows)
        for line in lines_of(new, benchmark.known_us if args.device.type == "cuda" else None):
            print(line, flush=True)

    left = run(benchmark, effort, reached, budget, record)
    results = Results(about, rows)
    print("\n".join(summary(Results(about, rows, least=on_cpu(results)))))
    if left:
        print(f"not measured, --budget-s {args.budget_s:g}: {len(left)} points, from {left[0]}")
    print(f"{budget.spent():.0f} s")


if __name__ == "__main__":
    main()
