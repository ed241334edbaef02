"""The points beyond a target of targets.py, which profile_gemm.py must explain, each with
the one that it is compared with; and, from ncu's counters of both, the table of notes/.

    python3 -m benchmarks.missed_points gemm_h200.json > points.txt
    python3 -m benchmarks.missed_points gemm_h200.json --ncu ncu_h200.json > table.md

Needs neither a GPU nor torch.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .pages import markdown
from .profile_gemm import SELECTED, Request
from .ratios import SCHEME_RATIOS
from .results import Results
from .summaries import REGRET
from .targets import judge
from .timed import GEMM, Timed

# Kernels that are shorter than the one that is explained.
OTHER_KERNELS = ("zero_flags_kernel", "splitk_reduce_kernel")
Kernel = dict[str, Any]  # a ncu_csv.Profile as profile_gemm.py writes it
UNITS = {"DRAM": "dram_pct", "L2": "l2_pct", "L1": "l1_pct", "tensor": "tensor_pct"}
UNITS |= {"ALU": "alu_pct", "FMA": "fma_pct", "issue": "issue_pct"}


@dataclass(frozen=True)
class Missed:
    """A point beyond its target: by which ratio, and to what (None: to a peer's time)."""

    target: str
    ratio: float
    of: Request
    over: Request | None = None


def missed(results: Results) -> Iterator[Missed]:
    schemes = results.schemes_of(GEMM)
    for scheme in schemes:
        for judged in judge(results, scheme):
            for p in judged.misses:
                yield Missed(f"{scheme.name} / limit", judged.over_limit[p], Request.of(p, scheme))
    for compared in SCHEME_RATIOS:
        of, over = (
            timed.scheme for timed in (compared.of, compared.over) if isinstance(timed, Timed)
        )
        for p, ratio in compared.ratios(results).items():
            if of and over and ratio > (compared.limit or math.inf):
                yield Missed(compared.text, ratio, Request.of(p, of), Request.of(p, over))
    for scheme in schemes:
        for p, regret in results.regrets(Timed(GEMM, scheme)).items():
            if regret.ratio > REGRET:
                of_p, best = Request.of(p, scheme), Request.of(p, scheme, regret.best)
                yield Missed(f"{scheme.name}, selected / best", regret.ratio, of_p, best)


def requests(results: Results) -> list[str]:
    """Return each point once, those of a weight behind each other."""
    wanted = {r for miss in missed(results) for r in (miss.of, miss.over) if r is not None}
    return [r.text for r in sorted(wanted, key=lambda r: (r.point, r.scheme.name, r.config))]


def table(results: Results, profiles: dict[str, list[Kernel]]) -> list[str]:
    """Return a line each: base -> missed where two were measured."""

    def main_kernel(request: Request) -> Kernel:
        kernels = profiles[request.text]
        return next(k for k in kernels if k["kernel"] not in OTHER_KERNELS)

    def name(request: Request) -> str:
        own = request.config == SELECTED
        if not own:
            return request.config
        return results.names[Timed(GEMM, request.scheme)][request.point]

    def row(miss: Missed) -> Iterator[str]:
        of = main_kernel(miss.of)["numbers"]
        over = main_kernel(miss.over)["numbers"] if miss.over else None

        def change(column: str, digits: int = 0) -> str:
            both = (over, of) if over else (of,)
            return " -> ".join(f"{numbers[column]:.{digits}f}" for numbers in both)

        def factor(column: str) -> str:
            return f"{of[column] / over[column]:.2f}" if over else "-"

        n, k, m, _ = miss.of.point
        names = [name(x) for x in (miss.over, miss.of) if x]
        busiest = sorted(UNITS, key=lambda unit: -of[UNITS[unit]])[:2]
        longest = list(main_kernel(miss.of)["stalls"].items())[:2]  # a Profile has most first
        yield f"{miss.target}: {n} x {k}, M = {m}"
        yield " -> ".join(dict.fromkeys(names))
        yield f"{miss.ratio:.2f}"
        yield change("us", 1)
        yield from (factor("dram_read_bytes"), factor("instructions"))
        yield ", ".join(f"{unit} {change(UNITS[unit])}" for unit in busiest)
        yield ", ".join(f"{reason} {cycles:.1f}" for reason, cycles in longest)

    header = ("point", "configuration", "ratio", "us (ncu)", "bytes", "instructions")
    units, stalls = "busiest units, % of their peak", "stalls, cycles an instruction"
    return markdown((*header, units, stalls), (row(miss) for miss in missed(results)))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--ncu", type=Path, help="what profile_gemm.py wrote of the points")
    args = parser.parse_args()
    results = Results.load(args.results)
    lines = table(results, json.loads(args.ncu.read_text())) if args.ncu else requests(results)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
