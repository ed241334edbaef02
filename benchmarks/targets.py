"""Compares measured times with their targets: for fpA_intB_gemm by bands of M, for every op by
ratios to others (ratios.py), and how far the planner's choice is behind the best configuration.

    python -m benchmarks.targets FILE.json [MORE.json ...] [--check]

--check exits with 1 when a target is missed. Needs neither a GPU nor torch.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .ratios import RATIOS, beyond, faster, listed, on_cpu, ratio_lines, shown, two_digits
from .references import References, references
from .results import Results
from .row import Point
from .schemes import MAIN, Scheme
from .summaries import cpu_lines, quantizer_lines, regret_lines
from .timed import GEMM, Timed

Limit = Callable[[References], float]


@dataclass(frozen=True)
class Target:
    """For first <= M <= last, at most limit(references) us; needs the references it names."""

    first: int
    last: int
    text: str
    needs: tuple[str, ...]
    limit: Limit

    @property
    def band(self) -> str:
        return f"{self.first}-{self.last}" if self.first < self.last else str(self.first)

    def limit_of(self, r: References) -> float | None:
        """None where a reference it needs was never measured."""
        return None if any(getattr(r, name) is None for name in self.needs) else self.limit(r)


def _known(us: float | None) -> float:
    assert us is not None  # Target.needs says so
    return us


def _peer_or_floor(first: int, last: int, share: float, peer: str) -> Target:
    text = f"{share:.2f} of the {peer}, or 1.10 of the floor where that is more"
    return Target(
        first, last, text, ("peer",), lambda r: max(share * _known(r.peer), 1.10 * r.floor)
    )


def _cublas(m: int, factor: float) -> Target:
    text = f"{factor:.2f} of cuBLAS"
    return Target(m, m, text, ("cublas",), lambda r: factor * _known(r.cublas))


MAIN_TARGETS = (
    _peer_or_floor(1, 16, 0.90, "best peer"),
    Target(
        32,
        64,
        "0.95 of the best mma.sync peer",
        ("mma_sync",),
        lambda r: 0.95 * _known(r.mma_sync),
    ),
    Target(
        128,
        512,
        "0.95 of the best mma.sync peer, or 1.35 of cuBLAS where that is less",
        ("mma_sync", "cublas"),
        lambda r: min(0.95 * _known(r.mma_sync), 1.35 * _known(r.cublas)),
    ),
    _cublas(1024, 1.20),
    _cublas(2048, 1.10),
    _cublas(4096, 1.06),
)
OTHER_TARGETS = tuple(
    _peer_or_floor(first, last, 0.95, "best peer of the same kind")
    for first, last in ((1, 16), (32, 64), (128, 512), (1024, 1024))
)


def targets_of(scheme: Scheme) -> tuple[Target, ...]:
    """Return the targets of a scheme; None for schemes that are only compared with another one of
    ours."""
    if scheme == MAIN:
        return MAIN_TARGETS
    symmetric_fp16 = scheme.zero_mode is None and scheme.dtype == MAIN.dtype
    same_kind = (scheme.bits, scheme.group_size) != (MAIN.bits, MAIN.group_size)
    return OTHER_TARGETS if symmetric_fp16 and same_kind else ()


@dataclass(frozen=True)
class Judged:
    """A target, and the points of its band.

    Attributes:
        over_limit: us / limit for each point that has a limit; at most 1 is met.
        peer, mma_sync, cublas: us over that reference, for each point that has it.
    """

    target: Target
    over_limit: dict[Point, float]
    peer: dict[Point, float]
    mma_sync: dict[Point, float]
    cublas: dict[Point, float]

    @property
    def misses(self) -> list[Point]:
        """Worst first."""
        return beyond(self.over_limit, 1.0)

    @property
    def met(self) -> int:
        return len(self.over_limit) - len(self.misses)


def judge(results: Results, scheme: Scheme) -> list[Judged]:
    """Return one entry for each band of M that was measured and has a target."""
    times, refs = results.of(Timed(GEMM, scheme)), references(results, scheme)

    def over(limits: Mapping[Point, float | None]) -> dict[Point, float]:
        return {p: times[p] / limit for p, limit in limits.items() if limit is not None}

    def one(target: Target) -> Judged:
        points = [p for p in sorted(times) if target.first <= p.m <= target.last]
        return Judged(
            target,
            over({p: target.limit_of(refs[p]) for p in points}),
            peer=over({p: refs[p].peer for p in points}),
            mma_sync=over({p: refs[p].mma_sync for p in points}),
            cublas=over({p: refs[p].cublas for p in points}),
        )

    judged = [one(target) for target in targets_of(scheme)]
    return [j for j in judged if j.over_limit]


def target_lines(results: Results) -> list[str]:
    lines = []
    for scheme in results.schemes_of(GEMM):
        judged = judge(results, scheme)
        if judged:
            lines.append(f"{scheme.name}: targets; us / limit and ratios are: mean (worst)")
        for j in judged:
            lines.append(
                f"  M {j.target.band:>8}: {j.met:2} of {len(j.over_limit):2} met, us / limit "
                f"{shown(j.over_limit)} [{j.target.text}]; best peer {shown(j.peer)}, "
                f"{faster(j.peer)}; best mma.sync peer {shown(j.mma_sync)}, "
                f"{faster(j.mma_sync)}; cuBLAS {shown(j.cublas)}"
            )
            lines += listed(two_digits(j.over_limit), j.misses)
    return lines


def summary(results: Results) -> list[str]:
    """``results`` of a CPU: with the least times. The bands of M are for a GPU."""
    first = cpu_lines if on_cpu(results) else target_lines
    parts = (first, ratio_lines, regret_lines, quantizer_lines)
    return [line for part in parts for line in part(results)]


def misses(results: Results) -> int:
    """Count the points beyond a target."""
    schemes = [] if on_cpu(results) else results.schemes_of(GEMM)
    bands = [j for scheme in schemes for j in judge(results, scheme)]
    return sum(len(j.misses) for j in bands) + sum(len(ratio.misses(results)) for ratio in RATIOS)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    options = parser.parse_args(arguments)
    results = Results.load(*options.results)
    if on_cpu(results):
        results = Results.load(*options.results, least=True)
    print("\n".join(summary(results)))
    if options.check:
        sys.exit(int(misses(results) > 0))


if __name__ == "__main__":
    main()
