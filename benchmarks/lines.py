"""The lines that a run prints for a point: a line for each op of ours and scheme, with the ratios
of its time to those of the others. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from .results import Regret, Results
from .row import Point, Row
from .schemes import Scheme
from .timed import DENSE, Timed, dense

Known = Callable[[Point, Scheme], Mapping[str, float]]
HEADER = (
    f"{'op':>16} {'scheme':>16} {'N':>6} {'K':>6} {'M':>6} {'us':>9} spread roof best  "
    "configuration (best): us over others"
)


def lines_of(rows: Sequence[Row], known_us: Known | None = None) -> Iterator[str]:
    """``rows`` of one point; ``known_us``: as Benchmark has it, on a GPU. ``roof`` is the share of
    the roofline that is reached, ``best`` the time over that of the best configuration."""
    here = Results({}, rows)
    for row in rows:
        if not row.selected:
            continue
        timed, point = Timed(row.op, Scheme.of_row(row)), row.point
        others = _others(here, timed, point)
        if known_us:
            others |= known_us(point, Scheme.of_row(row))
        ratios = ", ".join(f"{name} {row.us / us:.2f}" for name, us in others.items())
        regret = here.regrets(timed).get(point, Regret(1.0, row.kernel))
        better = "" if regret.best == row.kernel else f" ({regret.best})"
        roof = (row.roofline_us or 0.0) / row.us
        layer = f" {row.layer}:" if row.layer else ""
        yield (
            f"{row.op:>16} {Scheme.of_row(row).name:>16} {row.N:6} {row.K:6} {row.M:6} "
            f"{row.us:9.2f} {(row.us_max - row.us_min) / row.us:6.1%} {roof:4.2f} "
            f"{regret.ratio:4.2f} {layer} {row.kernel}{better}: {ratios}"
        )


def _others(here: Results, ours: Timed, point: Point) -> dict[str, float]:
    """Return name -> us of the other ops; of the dense products the one in our dtype, if there is
    one."""
    assert ours.scheme is not None
    same = dense(ours.scheme.dtype) if ours.scheme.dtype in ("float16", "bfloat16") else None
    found = {}
    for timed, times in here.times.items():
        stranger = timed.op == DENSE and same in here.times and timed != same
        if timed.op != ours.op and not stranger:
            found[timed.op] = times[point]
    return found
