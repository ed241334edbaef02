"""awq_gemm on CUDA at the points where vLLM's Triton op was timed (benchmarks/peers), with
fpA_intB_gemm on the same weights, repacked, in the same run.

    python benchmarks/bench_awq.py --out benchmarks/results/awq_h200.json
    python benchmarks/bench_awq.py --check benchmarks/results/awq_h200.json     # no GPU needed

As bench_gemm.py: CUDA graph replay over weight copies that no cache holds, the two ops in turn,
median. Prints the targets and how many points meet them; ``--check`` exits with 1 when one does
not. The file is complete after every point.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

import torch
from about import about_run
from operands import Call
from report import markdown
from results import OURS, Row, save
from schemes import Scheme
from shapes import Point, peer_rows
from suite import Budget, MakeGraph, graphs_of_a_point
from timing import Timing, copies_for, measured_ceilings, time_interleaved

import mixed_gemm
from mixed_gemm.formats.awq import unpack_columns

AWQ, TRITON = "awq_gemm", "vllm_triton_awq_gemm_g128"
SCHEME = Scheme.parse("w4_g128_sub_fp16")
GROUP, SPLIT_K = 128, 8  # vLLM calls its op with a split of 8
Times = Mapping[Point, Mapping[str, float]]  # us by op


def triton_us() -> dict[Point, float]:
    rows = peer_rows("peers_h200")
    return {point: kernels[TRITON] for point, kernels in rows.items() if TRITON in kernels}


@dataclass(frozen=True)
class Target:
    """us of `op` over us of `over` is at most `limit` for M <= last."""

    text: str
    over: str
    last: float
    limit: float

    def ratios(self, times: Times) -> dict[Point, float]:
        known = {point: us for point, us in times.items() if point[2] <= self.last}
        return {point: us[AWQ] / us[self.over] for point, us in sorted(known.items())}

    def misses(self, times: Times) -> list[Point]:
        """Worst first."""
        ratios = self.ratios(times)
        return sorted((p for p in ratios if ratios[p] > self.limit), key=lambda p: -ratios[p])


TARGETS = (
    Target("3 times as fast as the Triton op, M <= 64", TRITON, 64, 1 / 3),
    Target("faster than the Triton op, every M", TRITON, math.inf, 1.0),
    Target("at most 1.3 of fpA_intB_gemm, M <= 16", OURS, 16, 1.3),
)


def times_of(rows: Sequence[Row]) -> Times:
    """The measured ones and the peer's."""
    found: dict[Point, dict[str, float]] = {}
    for row in rows:
        found.setdefault((row["N"], row["K"], row["M"]), {})[row["op"]] = row["us"]
    peer = triton_us()
    return {point: {**us, TRITON: peer[point]} for point, us in found.items()}


def summary(times: Times) -> list[str]:
    """A table of all points, then a line for each target."""
    header = ("N x K", "M", "awq_gemm us", "fpA_intB_gemm us", "of it", "Triton us", "times faster")
    lines = markdown(
        header,
        (
            (
                f"{n} x {k}",
                str(m),
                f"{us[AWQ]:.1f}",
                f"{us[OURS]:.1f}",
                f"{us[AWQ] / us[OURS]:.2f}",
                f"{us[TRITON]:.1f}",
                f"{us[TRITON] / us[AWQ]:.2f}",
            )
            for (n, k, m), us in sorted(times.items())
        ),
    )
    for target in TARGETS:
        ratios, misses = target.ratios(times), target.misses(times)
        missed = ", ".join(f"{n}x{k}@{m} {ratios[n, k, m]:.2f}" for n, k, m in misses)
        worst = max(ratios.values(), default=math.nan)
        lines.append(
            f"{target.text}: {len(ratios) - len(misses)} of {len(ratios)} points, worst ratio "
            f"{worst:.2f} of {target.limit:.2f}" + (f"; not at {missed}" if missed else "")
        )
    return lines


class AwqOperands:
    """Copies of an AutoAWQ weight, and the same weights as fpA_intB_gemm takes them."""

    def __init__(self, n: int, k: int, device: str = "cuda") -> None:
        self.n, self.k, self.device = n, k, device
        count = copies_for(n * k // 2)
        self.awq = [self._weight() for _ in range(count)]
        self.native = [
            (mixed_gemm.awq_repack(qweight), scales, unpack_columns(qzeros).to(scales.dtype) - 8)
            for qweight, scales, qzeros in self.awq
        ]

    def _weight(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        groups, width = self.k // GROUP, self.n // 8
        words = partial(
            torch.randint, -(2**31), 2**31, device=self.device, dtype=torch.int32
        )  # any word is a valid one
        scales = torch.rand(groups, self.n, device=self.device, dtype=torch.float16) / 16
        return words(size=(self.k, width)), scales, words(size=(groups, width))

    def calls(self, m: int) -> dict[str, list[Call]]:
        """One call of each op for each copy of the weight."""
        a = torch.randn(m, self.k, device=self.device, dtype=torch.float16)
        awq = partial(torch.ops.mixed_gemm.awq_gemm, a)
        native = partial(torch.ops.mixed_gemm.fpA_intB_gemm, a, bits=4, group_size=GROUP)
        return {
            AWQ: [partial(awq, *weight, SPLIT_K) for weight in self.awq],
            OURS: [partial(native, *weight) for weight in self.native],
        }


def rows_of(
    point: Point, timings: Mapping[str, Timing], ceilings: Mapping[str, float], kernel: str
) -> Iterator[Row]:
    """As docs/speed.md describes them; `kernel` is what fpA_intB_gemm ran."""
    n, k, m = point
    groups = k // GROUP
    traffic = {OURS: SCHEME.traffic_bytes(point)}
    traffic[AWQ] = traffic[OURS] - 2 * groups * n + groups * n / 2  # zero points of 4 bits, not 16
    flops_us = 2e-6 * m * n * k / ceilings["dense_fp16_tflops"]
    for op, t in timings.items():
        yield {
            "op": op,
            "kernel": kernel if op == OURS else op,
            "selected": True,
            "dtype": SCHEME.dtype,
            "bits": 4,
            "group_size": GROUP,
            "zero_mode": "sub",
            **{"N": n, "K": k, "M": m},
            **{"us": round(t.us, 2), "us_min": round(t.us_min, 2), "us_max": round(t.us_max, 2)},
            "roofline_us": round(max(traffic[op] / (ceilings["read_gb_per_s"] * 1e3), flops_us), 2),
        }


def measure(
    points: Sequence[Point],
    rounds: int,
    ceilings: Mapping[str, float],
    record: Callable[[list[Row]], None],
    budget: Budget,
    device: str = "cuda",
    new_pool: Callable[[], MakeGraph] = graphs_of_a_point,
) -> list[Point]:
    """Hands the rows of every point to `record`. Returns the points that the budget left out."""
    left = sorted(points)
    for (n, k), group in groupby(sorted(points), key=lambda p: p[:2]):
        operands = AwqOperands(n, k, device)
        for point in group:
            if not budget.has_room():
                return left
            m, graph = point[2], new_pool()
            graphs = {op: graph(calls) for op, calls in operands.calls(m).items()}
            plan = mixed_gemm.plan(
                m, n, k, dtype="float16", bits=4, group_size=GROUP, zero_mode="sub", device=device
            )
            timings = time_interleaved(graphs, rounds)
            record(list(rows_of(point, timings, ceilings, plan.selected)))
            left.remove(point)
        del operands, graphs  # before the next ones are made
    return left


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", type=Path, help="compare this file with the targets, no run")
    parser.add_argument("--shapes", help="N:K,N:K to restrict to")
    parser.add_argument("--m", help="M,M to restrict to")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--budget-s", type=float, default=math.inf, help="stop before the point that may exceed it"
    )
    parser.add_argument("--commit", help="for meta, where there is no git")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def check(path: Path) -> int:
    """The exit status: 0 when every target is met."""
    times = times_of(json.loads(path.read_text())["rows"])
    print("\n".join(summary(times)))
    return int(any(target.misses(times) for target in TARGETS))


def main() -> None:
    args = arguments()
    if args.check:
        sys.exit(check(args.check))
    torch.manual_seed(0)
    shapes = {tuple(map(int, s.split(":"))) for s in args.shapes.split(",")} if args.shapes else ()
    ms = {int(m) for m in args.m.split(",")} if args.m else ()
    points = [p for p in triton_us() if (not shapes or p[:2] in shapes) and (not ms or p[2] in ms)]
    ceilings = measured_ceilings()
    about = {**about_run(ceilings, args.commit), "schemes": [SCHEME.name]}
    print(f"{about['gpu']}: {ceilings}; {len(points)} points", flush=True)
    rows: list[Row] = []

    def record(new: list[Row]) -> None:
        rows.extend(new)
        if args.out:
            save(args.out, about, rows)
        print(" ".join(f"{new[0][x]:6}" for x in "NKM"), [(r["op"], r["us"]) for r in new])
        sys.stdout.flush()

    left = measure(points, args.rounds, ceilings, record, Budget(args.budget_s))
    print("\n".join(summary(times_of(rows))))
    if left:
        print(f"not measured, --budget-s {args.budget_s:g}: {len(left)} points, from {left[0]}")


if __name__ == "__main__":
    main()
