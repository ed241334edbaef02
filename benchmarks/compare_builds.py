"""Two builds of the library in one process: the time of the new one over that of the old, kernel
by kernel, and of an eager call on the host.

    cmake ... -DMIXED_GEMM_NAMESPACE=mixed_gemm_old    # in a checkout of the old commit
    python benchmarks/compare_builds.py OLD.so [--out FILE.json]

The new build is the one that `import mixed_gemm` finds. Both run the same configurations, by name,
on the same tensors, in turns. Prints the mean of each group of configurations. The time on the host
is compared where --new is a third build, of the new commit with the namespace mixed_gemm_new.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

if __package__ in (None, ""):  # run as a file; behind an installed mixed_gemm
    sys.path.append(str(Path(__file__).resolve().parents[1]))

import mixed_gemm
from benchmarks import ceilings
from benchmarks.about import about_run
from benchmarks.ops.gemm import GemmOperands, plan_of
from benchmarks.ops.scaled_mm import ScaledOperands
from benchmarks.row import Point
from benchmarks.schemes import Scheme
from benchmarks.timed import AZP, AZP_PER_TOKEN, SCALED_MM
from mixed_gemm.selection.timing import Call, host_us, time_interleaved, timers_of

SCHEMES = [
    Scheme(4, 128, None, "float16"),
    Scheme(4, 64, "sub", "bfloat16"),
    Scheme(8, -1, None, "bfloat16"),
]
# Epilogues of the scaled GEMMs: whose zero points, and whether there is a bias.
KINDS = {
    "scaled": (SCALED_MM, False),
    "bias": (SCALED_MM, True),
    "azp": (AZP, False),
    "azp_per_token": (AZP_PER_TOKEN, False),
}
SHAPES = [(4096, 4096), (14336, 4096)]  # N, K
ROWS = [1, 16, 64, 256, 1024, 4096]
DEVICE = torch.device("cuda")
Cases = Iterator[tuple[str, dict[str, Sequence[Call]]]]  # name, calls of both builds


def with_op(calls: Sequence[partial[torch.Tensor]], op: Callable[..., object]) -> list[Call]:
    """Return the same calls of another build's op."""
    return [partial(op, *call.args, **call.keywords) for call in calls]


def gemm_cases(old: Any, schemes: list[Scheme], activation: str) -> Cases:
    """Return multistage tiles without a split, one split of each kind, and what is selected."""
    for n, k in SHAPES:
        operands = GemmOperands(n, k, DEVICE)
        for scheme in schemes:
            for m in ROWS:
                plan = plan_of(scheme, Point(n, k, m), DEVICE)
                named = [c.config for c in plan.candidates]
                tiles = [c for c in named if c.startswith("multistage") and c.count("_") == 1]
                streams = [c for c in named if c.startswith("multistage") and "streamk1" in c]
                parallel = [f"{c}_parallel2" for c in tiles if c.startswith("multistage_m128")]
                selected = plan.selected
                for group, configs in (
                    ("multistage", tiles),
                    ("multistage, stream-K", streams[:1]),
                    ("multistage, parallel", parallel),
                    ("selected", [] if selected == "dequantize_dense" else [selected]),
                ):
                    for config in configs:
                        calls = operands.ours(scheme, m, config)
                        new = [partial(call, activation=activation) for call in calls]
                        before = with_op(new, old.fpA_intB_gemm_config)
                        name = f"{group} {scheme.name} {n}x{k} M={m} {config}"
                        yield name, {"new": new, "old": before}


def scaled_cases(old: Any, kinds: list[str]) -> Cases:
    """Return tiles of mma.sync without a split, a split, and what is selected."""
    for n, k in SHAPES:
        operands = ScaledOperands(n, k, DEVICE)
        for kind in kinds:
            for m in ROWS[1:]:
                plan = mixed_gemm.plan(m, n, k, dtype=torch.int8, device=DEVICE)
                named = [c.config for c in plan.candidates]
                tiles = [c for c in named if c.startswith("scaled") and c.count("_") == 1]
                streams = [c for c in named if c.startswith("scaled") and "streamk1" in c]
                for group, configs in (
                    (kind, tiles),
                    (f"{kind}, stream-K", streams[:1]),
                    (f"{kind}, selected", [plan.selected]),
                ):
                    for config in configs:
                        what, bias = KINDS[kind]
                        new = operands.ours_int8(m, config, what, bias)
                        before = with_op(new, old._scaled_mm_config)
                        yield f"{group} int8 {n}x{k} M={m} {config}", {"new": new, "old": before}


def group_of(name: str) -> str:
    return name.split(" w")[0].split(" int8")[0]


def host_rows(new: Any, old: Any, rounds: int) -> Iterator[dict[str, Any]]:
    """Time calls that are shorter on the GPU than on the host. Both builds run without what Python
    registers for `mixed_gemm`: autograd, autocast, vmap."""
    operands = GemmOperands(256, 256, DEVICE)
    (call, *_) = operands.ours(SCHEMES[0], 1, "skinny_m8n16w8")
    options = {key: value for key, value in call.keywords.items() if key != "config"}
    ops = {"new": new.fpA_intB_gemm, "old": old.fpA_intB_gemm}
    best = dict.fromkeys(ops, math.inf)
    for _ in range(rounds):
        for name, op in ops.items():
            best[name] = min(best[name], host_us(partial(op, *call.args, **options), DEVICE))
    yield {
        "name": "host, eager fpA_intB_gemm 256x256 M=1",
        "new_us": best["new"],
        "old_us": best["old"],
        "ratio": best["new"] / best["old"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("--namespace", default="mixed_gemm_old")
    parser.add_argument("--new", type=Path, help="the new build again, as mixed_gemm_new")
    parser.add_argument("--schemes", help="names like w4_g32_fp16,w8_channel_bf16 instead")
    parser.add_argument("--activation", default="identity", help="of the multistage tiles")
    parser.add_argument("--kinds", default="scaled", help=f"of {','.join(KINDS)}: epilogues")
    parser.add_argument("--only", choices=("gemm", "scaled"), help="the other ops not at all")
    parser.add_argument("--tiles-only", action="store_true", help="no split, nothing selected")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--budget-s", type=float, default=400)
    parser.add_argument("--commit", help="of the new build, where there is no git")
    parser.add_argument("--old-commit", default="")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.ops.load_library(str(options.old))  # type: ignore[no-untyped-call]
    old = getattr(torch.ops, options.namespace)
    begun = time.monotonic()
    named = options.schemes.split(",") if options.schemes else []
    schemes = [Scheme.parse(name) for name in named] or SCHEMES
    rows: list[dict[str, Any]] = []
    if options.new:
        torch.ops.load_library(str(options.new))  # type: ignore[no-untyped-call]
        rows += host_rows(torch.ops.mixed_gemm_new, old, options.rounds)
    cases = {
        "gemm": gemm_cases(old, schemes, options.activation),
        "scaled": scaled_cases(old, options.kinds.split(",")),
    }
    for op in [options.only] if options.only else cases:
        for name, calls in cases[op]:
            if time.monotonic() - begun > options.budget_s:
                break
            if options.tiles_only and re.search("stream-K|parallel|selected", group_of(name)):
                continue
            times = time_interleaved(timers_of(calls, DEVICE), options.rounds)
            us = {key: timing.us for key, timing in times.items()}
            rows.append(
                {
                    "name": name,
                    "new_us": round(us["new"], 3),
                    "old_us": round(us["old"], 3),
                    "ratio": round(us["new"] / us["old"], 4),
                }
            )
    groups: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        groups[group_of(row["name"])].append(row["ratio"])
    means = {g: round(math.exp(sum(map(math.log, r)) / len(r)), 4) for g, r in groups.items()}
    for group, mean in means.items():
        print(
            f"{group}: {mean} of the old time, {len(groups[group])} points,"
            f" {min(groups[group]):.3f} to {max(groups[group]):.3f}"
        )
    if options.out:
        meta = about_run(DEVICE, ceilings.measured(DEVICE), options.commit)
        content = {"meta": {**meta, "old_commit": options.old_commit}, "means": means, "rows": rows}
        options.out.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
