"""Writes the results of a benchmark into the page that has a part for them, README.md or one of
docs/: the targets, the times, and what other schemes cost.

    python -m benchmarks.report benchmarks/results/gemm_h200.json
    python -m benchmarks.report benchmarks/results/scaled_h200.json
    python -m benchmarks.report benchmarks/results/fp8_h100.json
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from .pages import Part, markdown
from .ratios import FP8_RATIOS, SCHEME_RATIOS, W8A8_RATIOS, Ratio, faster, shown
from .references import references
from .results import Results
from .row import Point
from .schemes import MAIN, SUITES, Scheme
from .summaries import quantizer_gb_per_s
from .targets import judge
from .timed import (
    DEEP_GEMM,
    DENSE_FP16,
    FP8_BLOCKS,
    FP8_OURS,
    GEMM,
    INT8_BF16,
    INT_MM,
    INT_MM_SCALED,
    MSLK,
    QUANTIZE,
    QUANTIZE_FP8,
    QUANTIZE_FP8_BLOCKS,
    QUANTIZER_BYTES,
    SCALED_MM,
    TORCH_FP8,
    TORCH_FP8_FAST,
    Timed,
)

GEMM_PART, W8A8_PART, FP8_PART = Part("results"), Part("W8A8 results"), Part("float8 results")
MAIN_MS = (1, 4, 16, 64, 256, 1024, 4096)
W8_MS = (1, 4, 16, 64, 256, 1024)
W8A8_MS = (1, 16, 64, 256, 1024, 4096)


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


def cell_of(us: float | None, others: Iterable[float | None]) -> str:
    """Return the time, and its ratio to each of the others."""
    if us is None:
        return ""
    return f"{us:.1f} ({', '.join('-' if t is None else f'{us / t:.2f}' for t in others)})"


Others = Callable[[Point], Iterable[float | None]]  # the references of the time at a point


def grid_rows(
    times: Mapping[Point, float], others: Others, ms: Iterable[int], label: str = ""
) -> Iterator[list[str]]:
    """Yield a row for each (N, K), a cell for each M: us (over each of the others)."""
    for n, k in sorted({(point.n, point.k) for point in times}):
        points = [Point(n, k, m) for m in ms]
        yield [f"{n} x {k}{label}", *(cell_of(times.get(p), others(p)) for p in points)]


def grid(ms: Iterable[int], rows: Iterable[list[str]]) -> list[str]:
    return markdown(("N x K", *(f"M = {m}" for m in ms)), rows)


def scheme_rows(
    results: Results, scheme: Scheme, ms: Iterable[int], label: str = ""
) -> Iterator[list[str]]:
    """Yield rows of us (over the best peer, over cuBLAS)."""
    refs = references(results, scheme)

    def others(point: Point) -> tuple[float | None, ...]:
        return (refs[point].peer, refs[point].cublas) if point in refs else ()

    return grid_rows(results.of(Timed(GEMM, scheme)), others, ms, label)


def scheme_costs(results: Results) -> list[str]:
    header = ("compared", "points", "mean (worst)", "allowed", "points beyond")
    measured = ((ratio, ratio.ratios(results)) for ratio in SCHEME_RATIOS)
    return markdown(
        header,
        (
            (
                ratio.text,
                str(len(found)),
                shown(found),
                f"{ratio.limit:.2f}",
                str(len(ratio.misses(results))),
            )
            for ratio, found in measured
            if found
        ),
    )


def chosen(results: Results, timed: Timed) -> str:
    """Tell the planner's choices over the best measured, mean and worst."""
    return shown({point: regret.ratio for point, regret in results.regrets(timed).items()})


def machine(results: Results, source: str) -> str:
    meta = results.meta
    link = f"[{Path(source).name}]({source})"
    return f"{meta['gpu']}, torch {meta['torch']}, CUDA {meta['cuda']}, {link}"


def gemm_text(results: Results, source: str, plot: str | None) -> str:
    """Return the text of the page. ``source`` and ``plot`` are paths as the page links them."""
    c = results.meta["ceilings"]
    w8 = [
        row
        for scheme in SUITES["w8a16"]
        for row in scheme_rows(results, scheme, W8_MS, f", {scheme.name.split('_')[1]}")
    ]
    costs = scheme_costs(results)
    lines = [
        f"{machine(results, source)}. A ratio is our "
        "time over theirs: below 1 is faster. cuBLAS (16-bit weights) and the roofline "
        f"({c['read_gb_per_s']:.0f} GB/s read, {c['dense_fp16_tflops']:.0f} TFLOP/s dense fp16) "
        "were measured in the same run; the peers' times, on the same GPU model, are those of "
        "`benchmarks/peers/`.",
        "",
        *([f"![time over the roofline]({plot})", ""] if plot else []),
        "W4A16, group 128, fp16, against the targets: mean (worst).",
        "",
        *targets_table(results),
        "The same in us (ratio to the best peer, to cuBLAS). What `plan()` selects is "
        f"{chosen(results, Timed(GEMM, MAIN))} of the best configuration measured, mean (worst).",
        "",
        *grid(MAIN_MS, scheme_rows(results, MAIN, MAIN_MS)),
    ]
    if w8:
        lines += ["W8A16, fp16; peers of the same kind.", "", *grid(W8_MS, w8)]
    if costs:
        what = "What other schemes cost: ratios of times at the same points, W4A16"
        lines += [f"{what}; zero points are whole numbers, as AWQ and GPTQ hold them.", "", *costs]
    return "\n".join(lines).rstrip()


def ratio_row(results: Results, ratio: Ratio) -> list[str]:
    found = ratio.ratios(results)
    if ratio.limit is None:
        return [ratio.text, "-", shown(found), faster(found)]
    met = f"{len(found) - len(ratio.misses(results))} of {len(found)}"
    return [ratio.text, f"{ratio.limit:.2f}", shown(found), met]


def quantizer_line(results: Results, quantizer: Timed, what: str, dtype: str) -> list[str]:
    rates = quantizer_gb_per_s(results, quantizer)
    if not rates:
        return []
    copy = results.meta["ceilings"]["copy_gb_per_s"]
    (k, m), best = max(rates.items(), key=lambda item: item[0][0] * item[0][1])
    return [
        f"{what} of {m} x {k} {dtype}: {best:.0f} GB/s read and written "
        f"({QUANTIZER_BYTES} bytes an element); a copy reaches {copy:.0f} GB/s.",
        "",
    ]


def w8a8_text(results: Results, source: str) -> str:
    compared = [ratio_row(results, r) for r in W8A8_RATIOS if r.ratios(results)]
    times = [results.of(other) for other in (INT_MM, INT_MM_SCALED, DENSE_FP16)]

    def others(point: Point) -> list[float | None]:
        return [us.get(point) for us in times]

    lines = [
        f"W8A8 on {machine(results, source)}: int8 with "
        "a scale for each row and column, fp16 out; ratios of times within the run, mean (worst). "
        "`torch._int_mm` scales nothing and writes int32 (M below 32 is padded, it takes no less); "
        "its scaling here is three elementwise kernels.",
        "",
        *markdown(("compared", "allowed", "mean (worst)", "met, or faster"), compared),
        "In us (over `_int_mm`, over `_int_mm` with scaling, over cuBLAS fp16). What `plan()` "
        f"selects is {chosen(results, SCALED_MM)} of the best configuration measured.",
        "",
        *grid(W8A8_MS, grid_rows(results.of(SCALED_MM), others, W8A8_MS)),
        *quantizer_line(results, QUANTIZE, "`quantize_per_token`", "fp16"),
    ]
    return "\n".join(lines).rstrip()


def fp8_text(results: Results, source: str) -> str:
    compared = [ratio_row(results, r) for r in FP8_RATIOS if r.ratios(results)]

    def table(of: Timed, *over: Timed) -> list[str]:
        times = [results.of(other) for other in over]
        return grid(
            W8A8_MS,
            grid_rows(results.of(of), lambda point: [us.get(point) for us in times], W8A8_MS),
        )

    lines = [
        f"float8 on {machine(results, source)}: bf16 out; ratios of times within the run, mean "
        "(worst). `torch._scaled_mm` with exact sums is `use_fast_accum=False`; its fast sums, and "
        "those of MSLK, stay in the tensor core for all of K and keep about 14 bits. DeepGEMM has "
        "scales of 128 x 128 blocks.",
        "",
        *markdown(("compared", "aimed at", "mean (worst)", "met, or faster"), compared),
        "Scales of rows and columns, in us (over torch's exact sums, its fast sums, MSLK, our "
        f"int8). What `plan()` selects is {chosen(results, FP8_OURS)} of the best configuration "
        "measured.",
        "",
        *table(FP8_OURS, TORCH_FP8, TORCH_FP8_FAST, MSLK, INT8_BF16),
        "Scales of blocks, in us (over DeepGEMM, over ours with scales of rows and columns).",
        "",
        *table(FP8_BLOCKS, DEEP_GEMM, FP8_OURS),
        *quantizer_line(results, QUANTIZE_FP8, "`quantize_fp8`", "bf16"),
        *quantizer_line(results, QUANTIZE_FP8_BLOCKS, "With `block_size=128`", "bf16"),
    ]
    return "\n".join(lines).rstrip()


def part_of(results: Results) -> Part:
    """The part of a page that tells of the ops that were measured."""
    if results.of(FP8_OURS):
        return FP8_PART
    return GEMM_PART if results.of(Timed(GEMM, MAIN)) else W8A8_PART


def text_of(results: Results, source: Path, page: Path) -> str:
    """Make the text of ``page`` from the results in ``source``."""

    def link(path: Path) -> str:
        return os.path.relpath(path.resolve(), page.resolve().parent)

    if part_of(results) == W8A8_PART:
        return w8a8_text(results, link(source))
    if part_of(results) == FP8_PART:
        return fp8_text(results, link(source))
    plot = source.with_suffix(".png")
    return gemm_text(results, link(source), link(plot) if plot.exists() else None)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--page", type=Path, help="where the part is; else it is searched")
    options = parser.parse_args(arguments)
    results = Results.load(*options.results)
    part = part_of(results)
    page: Path = options.page or part.page()
    text = text_of(results, options.results[0], page)
    page.write_text(part.replaced(page.read_text(), text))
    print(page)


if __name__ == "__main__":
    main()
