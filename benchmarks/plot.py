"""Time over the roofline against M, one panel a shape, from a JSON file of `-m benchmarks gemm`.

    python -m benchmarks.plot benchmarks/results/gemm_h200.json

writes gemm_h200.png beside it. Needs matplotlib (`pip install .[plot]`), no GPU.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .references import references
from .results import Results
from .row import Point
from .schemes import MAIN, Scheme
from .timed import ATEN, GEMM, Timed

MMA_SYNC_TFLOPS = 643.0  # the instruction in a register-only loop (notes/mma_sync.md)
CEILING = f"mma.sync ceiling: {MMA_SYNC_TFLOPS:.0f} TFLOP/s (a constant: register-only loop)"
PANELS_A_ROW = 3
M_TICKS = (1, 4, 16, 64, 256, 1024, 4096)
TICKS = (1, 1.5, 2, 3, 4, 6, 8)
LIMITS = (0.88, 10)  # aten leaves the panel at M = 16: the rest would be squeezed into its half
# label -> colour (Okabe-Ito: told apart without red and green), dashes, width, marker
STYLES = {
    "mixed_gemm, as plan() selects": ("#D55E00", "-", 2.4, "o"),
    "best peer": ("#0072B2", "-", 1.4, "s"),
    "best mma.sync peer": ("#56B4E9", "--", 1.4, "^"),
    "cuBLAS, 16-bit weights": ("#555555", "-", 1.4, "D"),
    "aten int4, bf16": ("#009E73", ":", 1.4, "v"),
}
Lines = dict[str, dict[int, float]]  # label -> M -> time / roofline


def _roofline(results: Results, scheme: Scheme, shape: tuple[int, int]) -> dict[Point, float]:
    found = results.roofline[Timed(GEMM, scheme)]
    return {point: us for point, us in sorted(found.items()) if (point.n, point.k) == shape}


def lines_of(results: Results, scheme: Scheme, shape: tuple[int, int]) -> Lines:
    """Return the lines of one panel; a line that nobody measured is missing."""
    refs = references(results, scheme)
    roofline = {p: us for p, us in _roofline(results, scheme, shape).items() if p in refs}

    def peers(name: str) -> dict[Point, float]:
        values = {p: getattr(refs[p], name) for p in roofline}
        return {p: us for p, us in values.items() if us is not None}

    times = (
        results.of(Timed(GEMM, scheme)),
        peers("peer"),
        peers("mma_sync"),
        peers("cublas"),
        results.of(Timed(ATEN)) if (scheme.bits, scheme.group_size) == (4, 128) else {},
    )
    lines = {
        label: {p.m: us[p] / roofline[p] for p in sorted(roofline) if p in us}
        for label, us in zip(STYLES, times, strict=True)
    }
    return {label: line for label, line in lines.items() if line}


def mma_sync_ceiling(results: Results, scheme: Scheme, shape: tuple[int, int]) -> dict[int, float]:
    """Return M -> the time that mma.sync instructions allow, over the roofline."""
    ceilings = results.meta["ceilings"]
    found: dict[int, float] = {}
    for point, roofline in _roofline(results, scheme, shape).items():
        n, k, m, _ = point
        bytes_us = scheme.traffic_bytes(point) / (ceilings["read_gb_per_s"] * 1e3)
        found[m] = max(bytes_us, 2e-6 * m * n * k / MMA_SYNC_TFLOPS) / roofline
    return found


def panel(axis: Any, results: Results, scheme: Scheme, shape: tuple[int, int]) -> dict[str, Any]:
    """Draw one shape. Returns label -> line, for the legend."""
    from matplotlib.ticker import FixedLocator, FormatStrFormatter, NullLocator

    handles = {}
    for label, line in lines_of(results, scheme, shape).items():
        colour, dashes, width, marker = STYLES[label]
        (handles[label],) = axis.plot(
            *zip(*line.items(), strict=True),
            color=colour,
            linestyle=dashes,
            linewidth=width,
            marker=marker,
            markersize=4,
        )
    ceiling = mma_sync_ceiling(results, scheme, shape)
    (handles[CEILING],) = axis.plot(
        *zip(*ceiling.items(), strict=True), color="#AAAAAA", linestyle="-.", linewidth=1.2
    )
    axis.set_title(f"N = {shape[0]}, K = {shape[1]}", fontsize=10)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.xaxis.set_major_locator(FixedLocator(M_TICKS))
    axis.yaxis.set_major_locator(FixedLocator(TICKS))
    axis.yaxis.set_minor_locator(NullLocator())
    for one in (axis.xaxis, axis.yaxis):
        one.set_major_formatter(FormatStrFormatter("%g"))
    axis.tick_params(labelsize=8)
    axis.grid(color="#E5E5E5", linewidth=0.8)
    axis.set_ylim(*LIMITS)
    return handles


def draw(results: Results, scheme: Scheme, path: Path) -> None:
    """Draw the panels. Raises: ImportError without matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shapes = sorted({(p.n, p.k) for p in results.of(Timed(GEMM, scheme))})
    columns = min(PANELS_A_ROW, len(shapes))
    rows = -(-len(shapes) // columns)
    figure, axes = pyplot.subplots(
        rows, columns, figsize=(4.3 * columns, 3.2 * rows + 0.9), squeeze=False, sharey=True
    )
    handles: dict[str, Any] = {}
    for axis, shape in zip(axes.flat, shapes, strict=False):
        handles |= panel(axis, results, scheme, shape)
    for axis in axes.flat[len(shapes) :]:
        axis.set_visible(False)
    for axis in axes[-1]:
        axis.set_xlabel("M (tokens)", fontsize=9)
    for row in axes:
        row[0].set_ylabel("time / roofline (lower is better)", fontsize=9)
    c = results.meta["ceilings"]
    figure.suptitle(
        f"{scheme.name} on {results.meta['gpu']}; roofline measured in the same run: "
        f"{c['read_gb_per_s']:.0f} GB/s read, {c['dense_fp16_tflops']:.0f} TFLOP/s dense fp16",
        fontsize=11,
    )
    figure.legend(
        handles.values(), handles.keys(), loc="lower center", ncols=3, fontsize=9, frameon=False
    )
    figure.tight_layout(rect=(0, 0.08, 1, 0.98))
    figure.savefig(path, dpi=90, metadata={"Date": None} if path.suffix == ".svg" else {})
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--scheme", default=MAIN.name)
    parser.add_argument("--out", type=Path, help=".png or .svg; beside the first file by default")
    args = parser.parse_args()
    draw(
        Results.load(*args.results),
        Scheme.parse(args.scheme),
        args.out or args.results[0].with_suffix(".png"),
    )


if __name__ == "__main__":
    main()
