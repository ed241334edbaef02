"""Hardware counters of given configurations, by Nsight Compute, as a table for notes/.

    python3 -m benchmarks.profile_gemm --out ncu.json --points \
        skinny_m8n16w8@4096:4096:1,selected@28672:4096:64@w4_g128_bf16,F.linear@4096:4096:64

A point is configuration@N:K:M, with @scheme where it is not --scheme; `selected` is what plan()
picks, `F.linear` and `aten` are the others of the benchmark. Starts ncu on itself: clocks are
left alone (--clock-control none), caches flushed before each pass, as rotated weights find them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .ncu_csv import Profile, by_marker, counters_of, parse, table_rows, title_cells
from .pages import markdown
from .row import Point
from .schemes import MAIN, Scheme
from .timed import ATEN, DENSE

SECTIONS = (
    "SpeedOfLight",
    "ComputeWorkloadAnalysis",
    "MemoryWorkloadAnalysis",
    "MemoryWorkloadAnalysis_Tables",
    "SchedulerStats",
    "WarpStateStats",
    "LaunchStats",
    "Occupancy",
)
# The kernel of torch.cuda._sleep: launched before every call, it parts their kernels.
MARKER = "spin_kernel"
REPEATS = 2  # calls of a point; the faster one is reported
SELECTED = "selected"  # the configuration that plan() picks


@dataclass(frozen=True)
class Request:
    """A call to profile."""

    text: str
    config: str
    point: Point
    scheme: Scheme

    @classmethod
    def parse(cls, text: str, scheme: Scheme) -> Request:
        """Read a request. Raises: ValueError when it is not configuration@N:K:M[@scheme]."""
        parts = text.split("@")
        sizes = parts[1].split(":") if len(parts) in (2, 3) else []
        if len(sizes) != 3 or not all(size.isdigit() for size in sizes):
            raise ValueError(f"a point must look like configuration@N:K:M[@scheme], got {text!r}")
        n, k, m = map(int, sizes)
        own = Scheme.parse(parts[2]) if len(parts) == 3 else scheme
        return cls(text, parts[0], Point(n, k, m), own)

    @classmethod
    def of(cls, point: Point, scheme: Scheme, config: str = SELECTED) -> Request:
        """Make a request from its parts."""
        text = f"{config}@{point.n}:{point.k}:{point.m}@{scheme.name}"
        return cls(text, config, point, scheme)


def launch(requests: list[Request]) -> None:
    """Run in the process that ncu watches: REPEATS calls of every request, each after a marker."""
    import torch

    from mixed_gemm.selection.timing import Call

    from .ops.gemm import GemmOperands, plan_of

    made: GemmOperands | None = None
    for request in requests:
        n, k, m, _ = request.point
        if made is None or (made.n, made.k) != (n, k):
            made = None  # before the next ones are made
            made = GemmOperands(n, k, torch.device("cuda"))
        operands, scheme = made, request.scheme
        calls: Sequence[Call]
        if request.config == DENSE:
            calls = operands.dense(scheme.dtype, m)
        elif request.config == ATEN:
            calls = operands.aten_int4(m)
        else:
            config = request.config
            if config == SELECTED:
                config = plan_of(scheme, request.point, "cuda").selected
            calls = operands.ours(scheme, m, config)
        calls[0]()  # loads the kernels
        torch.cuda.synchronize()
        torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
        for i in range(REPEATS):
            torch.cuda._sleep(1)  # type: ignore[no-untyped-call]
            calls[i % len(calls)]()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


def ncu_command(log: Path, metrics: list[str], points: str, scheme: str) -> list[str]:
    return [
        "ncu",
        *("--clock-control", "none", "--cache-control", "all", "--profile-from-start", "off"),
        *("--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log)),
        *(word for section in SECTIONS for word in ("--section", section)),
        *(("--metrics", ",".join(metrics)) if metrics else ()),
        *(sys.executable, "-m", "benchmarks.profile_gemm", "--launch"),
        *("--points", points, "--scheme", scheme),
    ]


def condensed(requests: list[Request], text: str) -> dict[str, list[Profile]]:
    """Return request -> the kernels of its fastest call.

    Raises:
        ValueError: a call is missing from the text.
    """
    segments = by_marker(parse(text), MARKER)
    if len(segments) != REPEATS * len(requests) or not all(segments):
        raise ValueError(
            f"{REPEATS * len(requests)} calls were made, ncu reports {len(segments)}, "
            f"{sum(not s for s in segments)} of them without a kernel"
        )
    found: dict[str, list[Profile]] = {}
    for i, request in enumerate(requests):
        calls = segments[REPEATS * i : REPEATS * (i + 1)]
        found[request.text] = min(calls, key=lambda call: sum(p.numbers["us"] for p in call))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", required=True)
    parser.add_argument("--scheme", default=MAIN.name)
    parser.add_argument("--out", type=Path, help="JSON; ncu's own table goes beside it, as .csv")
    parser.add_argument("--budget-s", type=float, default=540)
    parser.add_argument("--launch", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    scheme = Scheme.parse(args.scheme)
    requests = [Request.parse(text, scheme) for text in args.points.split(",")]
    if args.launch:
        launch(requests)
        return
    log = (args.out or Path("ncu.json")).with_suffix(".csv")
    query = subprocess.run(["ncu", "--query-metrics"], capture_output=True, text=True, check=True)
    command = ncu_command(log, counters_of(query.stdout), args.points, args.scheme)
    done = subprocess.run(command, timeout=args.budget_s, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}: {log.read_text()[-3000:]}")
    found = condensed(requests, log.read_text())
    rows = [row for text, profiles in found.items() for row in table_rows(text, profiles)]
    print("\n".join(markdown(title_cells(), rows)))
    if args.out:
        data = {text: [asdict(p) for p in profiles] for text, profiles in found.items()}
        lines = (f"{json.dumps(text)}: {json.dumps(kernels)}" for text, kernels in data.items())
        args.out.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
