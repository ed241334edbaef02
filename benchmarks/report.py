"""Writes the results part of docs/speed.md from JSON files of bench_gemm.py: the targets, the times
of the main scheme and of W8A16, and what other schemes cost.

    python benchmarks/report.py benchmarks/results/gemm_h200.json
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from references import references
from results import Results
from schemes import MAIN, SUITES, Scheme
from shapes import Point
from targets import SCHEME_RATIOS, faster, judge, ratios_of, regrets, shown

PAGE = Path(__file__).parents[1] / "docs" / "speed.md"
BEGIN, END = "<!-- results: benchmarks/report.py writes this part -->", "<!-- end of results -->"
MAIN_MS = (1, 4, 16, 64, 256, 1024, 4096)
W8_MS = (1, 4, 16, 64, 256, 1024)


def markdown(header: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """A table, and the empty line after it; nothing when there are no rows."""
    cells = [list(header), *map(list, rows)]
    if len(cells) == 1:
        return []
    cells.insert(1, ["---"] * len(cells[0]))
    return [*("| " + " | ".join(row) + " |" for row in cells), ""]


def targets_table(results: Results) -> list[str]:
    header = ("M", "target", "met", "us / limit", "us / best peer", "us / best mma.sync peer")
    return markdown(
        header,
        (
            (
                j.target.band,
                j.target.text,
                f"{j.met} of {len(j.over_limit)}",
                shown(j.over_limit),
                f"{shown(j.peer)}, {faster(j.peer)}",
                f"{shown(j.mma_sync)}, {faster(j.mma_sync)}",
            )
            for j in judge(results, MAIN)
        ),
    )


def times_table(
    results: Results, schemes: Iterable[Scheme], ms: tuple[int, ...], label: Callable[..., str]
) -> list[str]:
    """A row for each scheme and shape, a column for each M: us (ratio to the best peer, to
    cuBLAS)."""

    def cell(scheme: Scheme, point: Point) -> str:
        us = results.selected[scheme].get(point)
        if us is None:
            return ""
        here = references(results, scheme)[point]
        ratios = ("-" if t is None else f"{us / t:.2f}" for t in (here.peer, here.cublas))
        return f"{us:.1f} ({', '.join(ratios)})"

    rows = (
        [label(scheme, n, k), *(cell(scheme, (n, k, m)) for m in ms)]
        for scheme in schemes
        for n, k in sorted({p[:2] for p in results.selected.get(scheme, {})})
    )
    return markdown(("N x K", *(f"M = {m}" for m in ms)), rows)


def costs_table(results: Results) -> list[str]:
    header = ("compared", "points", "mean (worst)", "allowed", "points beyond")
    measured = ((ratio, ratios_of(results, ratio)) for ratio in SCHEME_RATIOS)
    return markdown(
        header,
        (
            (
                ratio.text,
                str(len(found)),
                shown(found),
                f"{ratio.limit:.2f}",
                str(sum(r > ratio.limit for r in found.values())),
            )
            for ratio, found in measured
            if found
        ),
    )


def text_of(results: Results, source: str, plot: str | None) -> str:
    """The part between the markers. `source` and `plot` are paths as the page links them."""
    meta, c = results.meta, results.meta["ceilings"]
    found = {p: r.ratio for p, r in regrets(results, MAIN).items()}
    main_times = times_table(results, (MAIN,), MAIN_MS, lambda scheme, n, k: f"{n} x {k}")
    w8 = times_table(
        results,
        SUITES["w8a16"],
        W8_MS,
        lambda scheme, n, k: f"{n} x {k}, {scheme.name.split('_')[1]}",
    )
    costs = costs_table(results)
    lines = [
        f"{meta['gpu']}, torch {meta['torch']}, CUDA {meta['cuda']}, "
        f"[{Path(source).name}]({source}). A ratio is our time over theirs: below 1 is faster. "
        "cuBLAS (16-bit weights) and the roofline "
        f"({c['read_gb_per_s']:.0f} GB/s read, {c['dense_fp16_tflops']:.0f} TFLOP/s dense fp16) "
        "were measured in the same run; the peers' times, on the same GPU model, are those of "
        "`benchmarks/peers/`.",
        "",
        *([f"![time over the roofline]({plot})", ""] if plot else []),
        "W4A16, group 128, fp16, against the targets: mean (worst).",
        "",
        *targets_table(results),
        "The same in us (ratio to the best peer, to cuBLAS). What `plan()` selects is "
        f"{shown(found)} of the best configuration measured, mean (worst).",
        "",
        *main_times,
    ]
    if w8:
        lines += ["W8A16, fp16; peers of the same kind.", "", *w8]
    if costs:
        what = "What other schemes cost: ratios of times at the same points, W4A16"
        lines += [f"{what}; zero points are whole numbers, as AWQ and GPTQ hold them.", "", *costs]
    return "\n".join(lines).rstrip()


def replaced(page: str, text: str, begin: str = BEGIN, end: str = END) -> str:
    """Raises: ValueError when the markers are not there, once each."""
    head, rest = page.split(begin)
    _, tail = rest.split(end)
    return f"{head}{begin}\n\n{text}\n\n{end}{tail}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--page", type=Path, default=PAGE)
    args = parser.parse_args()
    first: Path = args.results[0].resolve()
    folder = args.page.resolve().parent
    plot = first.with_suffix(".png")
    text = text_of(
        Results.load(*args.results),
        os.path.relpath(first, folder),
        os.path.relpath(plot, folder) if plot.exists() else None,
    )
    args.page.write_text(replaced(args.page.read_text(), text))


if __name__ == "__main__":
    main()
