"""Writes the W8A8 part of docs/speed.md from a JSON file of bench_scaled_mm.py: the targets, the
times, and what the quantizers reach.

    python benchmarks/report_scaled.py benchmarks/results/scaled_h200.json
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from report import PAGE, markdown, replaced
from scaled_results import CUBLAS, INT_MM, INT_MM_SCALED, OURS, QUANTIZE, ScaledResults
from scaled_targets import (
    COMPARED,
    QUANTIZED_BYTES,
    TARGETS,
    Ratio,
    beyond,
    quantizer_gb_per_s,
    regrets,
)
from shapes import Point
from targets import faster, shown

BEGIN = "<!-- W8A8 results: benchmarks/report_scaled.py writes this part -->"
END = "<!-- end of W8A8 results -->"
MS = (1, 16, 64, 256, 1024, 4096)


def ratio_row(results: ScaledResults, ratio: Ratio) -> list[str]:
    found = results.ratios(ratio.of, ratio.over, ratio.first_m)
    met = faster(found)
    if ratio.limit is not None:
        met = f"{len(found) - len(beyond(found, ratio.limit))} of {len(found)}"
    limit = "-" if ratio.limit is None else f"{ratio.limit:.2f}"
    return [ratio.text, limit, shown(found), met]


def times_table(results: ScaledResults) -> list[str]:
    """A row for each shape, a column for each M: us (over _int_mm, _int_mm + scaling, cuBLAS)."""

    def cell(point: Point) -> str:
        us = results.times[OURS].get(point)
        if us is None:
            return ""
        over = (results.ratios(OURS, other).get(point) for other in (INT_MM, INT_MM_SCALED, CUBLAS))
        return f"{us:.1f} ({', '.join('-' if r is None else f'{r:.2f}' for r in over)})"

    shapes = sorted({p[:2] for p in results.times[OURS]})
    rows = ([f"{n} x {k}", *(cell((n, k, m)) for m in MS)] for n, k in shapes)
    return markdown(("N x K", *(f"M = {m}" for m in MS)), rows)


def quantizer_line(results: ScaledResults) -> list[str]:
    rates = quantizer_gb_per_s(results, QUANTIZE)
    if not rates:
        return []
    copy = results.meta["ceilings"]["copy_gb_per_s"]
    (k, m), best = max(rates.items(), key=lambda item: item[0][0] * item[0][1])
    return [
        f"`quantize_per_token` of {m} x {k} fp16: {best:.0f} GB/s read and written "
        f"({QUANTIZED_BYTES} bytes an element); a copy reaches {copy:.0f} GB/s.",
        "",
    ]


def text_of(results: ScaledResults, source: str) -> str:
    meta = results.meta
    compared = [
        ratio_row(results, r) for r in (*TARGETS, *COMPARED) if results.ratios(r.of, r.over)
    ]
    chosen = {point: ratio for point, (ratio, _) in regrets(results).items()}
    lines = [
        f"W8A8 on {meta['gpu']}, torch {meta['torch']}, CUDA {meta['cuda']}, "
        f"[{Path(source).name}]({source}): int8 with a scale for each row and column, fp16 out; "
        "ratios of times within the run, mean (worst). "
        "`torch._int_mm` scales nothing and writes int32 (M below 32 is padded, it takes no less); "
        "its scaling here is three elementwise kernels.",
        "",
        *markdown(("compared", "allowed", "mean (worst)", "met, or faster"), compared),
        "In us (over `_int_mm`, over `_int_mm` with scaling, over cuBLAS fp16). What `plan()` "
        f"selects is {shown(chosen)} of the best configuration measured.",
        "",
        *times_table(results),
        *quantizer_line(results),
    ]
    return "\n".join(lines).rstrip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--page", type=Path, default=PAGE)
    args = parser.parse_args()
    source = os.path.relpath(args.results.resolve(), args.page.resolve().parent)
    text = text_of(ScaledResults.load(args.results), source)
    args.page.write_text(replaced(args.page.read_text(), text, BEGIN, END))


if __name__ == "__main__":
    main()
