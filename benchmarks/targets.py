"""Compares measured times with the targets of docs/speed.md: per band of M the points that
meet theirs, ratios between schemes, and how far plan()'s choice is behind the best configuration.

    python benchmarks/targets.py results.json [more.json ...]

Needs neither a GPU nor torch.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from references import References, references
from results import Results
from schemes import MAIN, Scheme
from shapes import Point

REGRET = 1.05  # the selected configuration over the best measured one


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


def _peer_or_floor(first: int, last: int, share: float, peer: str) -> Target:
    text = f"{share:.2f} of the {peer}, or 1.10 of the floor where that is more"
    return Target(first, last, text, ("peer",), lambda r: max(share * _(r.peer), 1.10 * r.floor))


def _cublas(m: int, factor: float) -> Target:
    text = f"{factor:.2f} of cuBLAS"
    return Target(m, m, text, ("cublas",), lambda r: factor * _(r.cublas))


def _(us: float | None) -> float:
    assert us is not None  # Target.needs says so
    return us


MAIN_TARGETS = (
    _peer_or_floor(1, 16, 0.90, "best peer"),
    Target(32, 64, "0.95 of the best mma.sync peer", ("mma_sync",), lambda r: 0.95 * _(r.mma_sync)),
    Target(
        128,
        512,
        "0.95 of the best mma.sync peer, or 1.35 of cuBLAS where that is less",
        ("mma_sync", "cublas"),
        lambda r: min(0.95 * _(r.mma_sync), 1.35 * _(r.cublas)),
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
    """Those of docs/speed.md; none for schemes that are only compared with another one."""
    if scheme == MAIN:
        return MAIN_TARGETS
    symmetric_fp16 = scheme.zero_mode is None and scheme.dtype == MAIN.dtype
    same_kind = (scheme.bits, scheme.group_size) != (MAIN.bits, MAIN.group_size)
    return OTHER_TARGETS if symmetric_fp16 and same_kind else ()


def shown(ratios: Mapping[Point, float]) -> str:
    """Mean and worst."""
    if not ratios:
        return "-"
    return f"{statistics.mean(ratios.values()):.2f} ({max(ratios.values()):.2f})"


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
        return _beyond(self.over_limit, 1.0)

    @property
    def met(self) -> int:
        return len(self.over_limit) - len(self.misses)


def judge(results: Results, scheme: Scheme) -> list[Judged]:
    """One entry for each band of M that was measured and has a target."""
    times, refs = results.selected[scheme], references(results, scheme)

    def over(limits: Mapping[Point, float | None]) -> dict[Point, float]:
        return {p: times[p] / limit for p, limit in limits.items() if limit is not None}

    def one(target: Target) -> Judged:
        points = [p for p in sorted(times) if target.first <= p[2] <= target.last]
        return Judged(
            target,
            over({p: target.limit_of(refs[p]) for p in points}),
            peer=over({p: refs[p].peer for p in points}),
            mma_sync=over({p: refs[p].mma_sync for p in points}),
            cublas=over({p: refs[p].cublas for p in points}),
        )

    judged = [one(target) for target in targets_of(scheme)]
    return [j for j in judged if j.over_limit]


@dataclass(frozen=True)
class SchemeRatio:
    """A scheme that may cost at most `limit` times another at any point."""

    text: str
    of: Scheme
    over: Scheme
    limit: float


SCHEME_RATIOS = (
    SchemeRatio("bf16 / fp16", Scheme.parse("w4_g128_bf16"), MAIN, 1.05),
    SchemeRatio("group 64 / 128", Scheme.parse("w4_g64_fp16"), MAIN, 1.15),
    SchemeRatio("group 32 / 128", Scheme.parse("w4_g32_fp16"), MAIN, 1.15),
    SchemeRatio("zeros / symmetric", Scheme.parse("w4_g128_sub_fp16"), MAIN, 1.05),
)


def ratios_of(results: Results, ratio: SchemeRatio) -> dict[Point, float]:
    """Empty when one of the two was not measured."""
    times, base = (results.selected.get(scheme, {}) for scheme in (ratio.of, ratio.over))
    return {p: times[p] / base[p] for p in sorted(times) if p in base}


@dataclass(frozen=True)
class Regret:
    """How far plan()'s choice is behind: selected / best measured, and which that is."""

    ratio: float
    best: str


def regrets(results: Results, scheme: Scheme) -> dict[Point, Regret]:
    found: dict[Point, Regret] = {}
    for point, us in results.selected[scheme].items():
        kernels = results.measured[scheme][point]
        best = min(kernels, key=lambda name: kernels[name])
        found[point] = Regret(us / kernels[best], best)
    return found


def _listed(values: Mapping[Point, str], points: Sequence[Point]) -> list[str]:
    """Four a line: a list of misses is long when there is work to do."""
    words = [f"{n}x{k}@{m} {values[n, k, m]}" for n, k, m in points]
    return ["    " + ", ".join(words[i : i + 4]) for i in range(0, len(words), 4)]


def faster(ratios: Mapping[Point, float]) -> str:
    """At how many of the points we are faster than the reference."""
    return f"faster at {sum(ratio < 1 for ratio in ratios.values())} of {len(ratios)}"


def _beyond(ratios: Mapping[Point, float], limit: float) -> list[Point]:
    """Worst first."""
    return sorted((p for p in ratios if ratios[p] > limit), key=lambda p: -ratios[p])


def _two_digits(ratios: Mapping[Point, float]) -> dict[Point, str]:
    return {point: f"{ratio:.2f}" for point, ratio in ratios.items()}


def target_lines(results: Results) -> list[str]:
    lines = []
    for scheme in results.selected:
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
            lines += _listed(_two_digits(j.over_limit), j.misses)
    return lines


def ratio_lines(results: Results) -> list[str]:
    lines = []
    for ratio in SCHEME_RATIOS:
        found = ratios_of(results, ratio)
        if not found:
            continue
        beyond = _beyond(found, ratio.limit)
        count = f"{len(beyond)} of {len(found)}"
        lines.append(f"{ratio.text}: {shown(found)}, beyond {ratio.limit:.2f} at {count}")
        lines += _listed(_two_digits(found), beyond)
    return lines


def regret_lines(results: Results) -> list[str]:
    lines = []
    for scheme in results.selected:
        found = regrets(results, scheme)
        ratios = {point: regret.ratio for point, regret in found.items()}
        beyond = _beyond(ratios, REGRET)
        count = f"beyond {REGRET:.2f} at {len(beyond)} of {len(found)}"
        lines.append(f"{scheme.name}: selected / best measured {shown(ratios)}, {count}")
        lines += _listed({p: f"{r.ratio:.2f} ({r.best})" for p, r in found.items()}, beyond)
    return lines


def summary(results: Results) -> list[str]:
    return [*target_lines(results), *ratio_lines(results), *regret_lines(results)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("results", type=Path, nargs="+")
    print("\n".join(summary(Results.load(*parser.parse_args().results))))


if __name__ == "__main__":
    main()
