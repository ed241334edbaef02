"""Compares times of bench_scaled_mm.py with the targets of the W8A8 ops and with other libraries.

    python benchmarks/scaled_targets.py benchmarks/results/scaled_h200.json

Needs neither a GPU nor torch.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scaled_results import (
    AZP,
    AZP_PER_TOKEN,
    CUBLAS,
    FP8_BF16,
    FP8_FP16,
    INT_MM,
    INT_MM_SCALED,
    LAYER,
    OURS,
    QUANTIZERS,
    TORCH_FP8,
    ScaledResults,
    Times,
    Variant,
)
from shapes import Point, peer_rows
from targets import REGRET, faster, shown

QUANTIZED_BYTES = 3  # an element is read as 16 bits and written as 8


@dataclass(frozen=True)
class Ratio:
    """One time over another, for M >= first_m; at most `limit` where there is a target."""

    text: str
    of: Variant
    over: Variant
    limit: float | None = None
    first_m: int = 1


TARGETS = (
    Ratio("scaled_mm / _int_mm", OURS, INT_MM, 1.05),
    Ratio("scaled_mm / (_int_mm + scaling), M >= 256", OURS, INT_MM_SCALED, 0.80, 256),
    Ratio("scaled_mm_azp / scaled_mm", AZP, OURS, 1.05),
    Ratio("scaled_mm_azp per token / scaled_mm", AZP_PER_TOKEN, OURS, 1.05),
)
COMPARED = (
    Ratio("scaled_mm / cuBLAS fp16", OURS, CUBLAS),
    Ratio("quantize_per_token + scaled_mm / cuBLAS fp16", LAYER, CUBLAS),
    Ratio("fp8 scaled_mm, bf16 / torch._scaled_mm", FP8_BF16, TORCH_FP8),
    Ratio("fp8 scaled_mm, fp16 / torch._scaled_mm, bf16", FP8_FP16, TORCH_FP8),
)
PEERS = {
    "torch_int_mm_only": "_int_mm of the peer timings",
    "torch_int_mm_plus_scaling_fp16": "_int_mm + scaling of the peer timings",
}


def beyond(ratios: Times, limit: float) -> list[Point]:
    """Worst first."""
    return sorted((p for p in ratios if ratios[p] > limit), key=lambda p: -ratios[p])


def _listed(ratios: Times, points: list[Point]) -> Iterator[str]:
    for n, k, m in points:
        yield f"    {n}x{k}@{m} {ratios[n, k, m]:.3f}"


def regrets(results: ScaledResults) -> dict[Point, tuple[float, str]]:
    """The time of plan()'s choice over the best measured, and the name of that."""
    found = {}
    for point, us in results.times.get(OURS, {}).items():
        measured = results.candidates[point]
        best = min(measured, key=lambda name: measured[name])
        found[point] = us / measured[best], best
    return found


def quantizer_gb_per_s(results: ScaledResults, variant: Variant) -> dict[tuple[int, int], float]:
    """(K, M) -> bytes read and written by a quantizer in a second."""
    times = results.times.get(variant, {})
    return {(k, m): QUANTIZED_BYTES * k * m / us * 1e-3 for (_, k, m), us in times.items()}


def summary(results: ScaledResults) -> Iterator[str]:
    """Ratios are: mean (worst)."""
    for ratio in (*TARGETS, *COMPARED):
        found = results.ratios(ratio.of, ratio.over, ratio.first_m)
        if not found:
            continue
        if ratio.limit is None:
            yield f"{ratio.text}: {shown(found)}, {faster(found)}"
            continue
        missed = beyond(found, ratio.limit)
        met = f"{len(found) - len(missed)} of {len(found)} within {ratio.limit:.2f}"
        yield f"{ratio.text}: {shown(found)}, {met}"
        yield from _listed(found, missed)
    for kernel, text in PEERS.items():
        peers = {p: row[kernel] for p, row in peer_rows("peers_w8a8_h200").items() if kernel in row}
        ours = results.times.get(OURS, {})
        found = {p: us / peers[p] for p, us in ours.items() if p in peers}
        if found:
            yield f"scaled_mm / {text}: {shown(found)}, {faster(found)}"
    by_point = regrets(results)
    ratios = {point: ratio for point, (ratio, _) in by_point.items()}
    if ratios:
        behind = beyond(ratios, REGRET)
        count = f"beyond {REGRET:.2f} at {len(behind)} of {len(ratios)}"
        yield f"selected / best measured: {shown(ratios)}, {count}"
        lines = _listed(ratios, behind)
        yield from (f"{line} ({by_point[p][1]})" for line, p in zip(lines, behind, strict=True))
    for variant in QUANTIZERS:
        rates = quantizer_gb_per_s(results, variant)
        if rates:
            largest = {k: max(m for (kk, m) in rates if kk == k) for k, _ in rates}
            text = ", ".join(f"{m} x {k}: {rates[k, m]:.0f}" for k, m in sorted(largest.items()))
            yield f"{variant.op}, GB/s: {text}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("results", type=Path)
    print("\n".join(summary(ScaledResults.load(parser.parse_args().results))))


if __name__ == "__main__":
    main()
