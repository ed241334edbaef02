"""What profile_gemm.py must explain: each point beyond a target of targets.py, and the one that
it is compared with. One a line, ordered by weight.

    python3 benchmarks/missed_points.py benchmarks/results/gemm_h200.json > points.txt

Needs neither a GPU nor torch.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from results import Results
from schemes import Scheme
from shapes import Point
from targets import REGRET, SCHEME_RATIOS, judge, ratios_of, regrets

SELECTED = "selected"
Wanted = tuple[Point, str, str]  # point, configuration, scheme


def missed(results: Results) -> Iterator[Wanted]:
    """May name a point more than once."""

    def wanted(point: Point, scheme: Scheme, config: str = SELECTED) -> Wanted:
        return point, config, scheme.name

    for scheme in results.selected:
        for judged in judge(results, scheme):
            yield from (wanted(point, scheme) for point in judged.misses)
        for point, regret in regrets(results, scheme).items():
            if regret.ratio > REGRET:
                yield wanted(point, scheme)
                yield wanted(point, scheme, regret.best)
    for ratio in SCHEME_RATIOS:
        for point, value in ratios_of(results, ratio).items():
            if value > ratio.limit:
                yield wanted(point, ratio.of)
                yield wanted(point, ratio.over)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("results", type=Path, nargs="+")
    found = sorted(set(missed(Results.load(*parser.parse_args().results))))
    for (n, k, m), config, scheme in found:
        print(f"{config}@{n}:{k}:{m}@{scheme}")


if __name__ == "__main__":
    main()
