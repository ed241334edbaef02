"""Lines about results that no target is set for: the planner's choices, the bandwidth of the
quantizers, the times on a CPU. Imports no torch."""

from __future__ import annotations

from .ratios import beyond, listed, shown
from .results import Results, over
from .schemes import Scheme
from .timed import ATEN, GEMM, QUANTIZER_BYTES, QUANTIZERS, Timed, dense

REGRET = 1.05  # the selected configuration over the best measured one


def regret_lines(results: Results) -> list[str]:
    lines = []
    for timed in results.times:
        found = results.regrets(timed)
        chosen_from = (len(kernels) for kernels in results.measured.get(timed, {}).values())
        if max(chosen_from, default=0) < 2 or timed.scheme is None:
            continue
        ratios = {point: regret.ratio for point, regret in found.items()}
        behind = beyond(ratios, REGRET)
        count = f"beyond {REGRET:.2f} at {len(behind)} of {len(found)}"
        name = timed.scheme.name if timed.op == GEMM else f"{timed.op} {timed.scheme.name}"
        lines.append(f"{name}: selected / best measured {shown(ratios)}, {count}")
        lines += listed({p: f"{r.ratio:.2f} ({r.best})" for p, r in found.items()}, behind)
    return lines


def quantizer_gb_per_s(results: Results, quantizer: Timed) -> dict[tuple[int, int], float]:
    """(K, M) -> bytes read and written by a quantizer in a second."""
    times = results.of(quantizer)
    return {(p.k, p.m): QUANTIZER_BYTES * p.k * p.m / us * 1e-3 for p, us in times.items()}


def quantizer_lines(results: Results) -> list[str]:
    """Tell the bandwidth of the quantizers at the most rows that were measured of each K."""
    lines = []
    for quantizer in QUANTIZERS:
        rates = quantizer_gb_per_s(results, quantizer)
        if rates:
            largest = {k: max(m for (kk, m) in rates if kk == k) for k, _ in rates}
            text = ", ".join(f"{m} x {k}: {rates[k, m]:.0f}" for k, m in sorted(largest.items()))
            lines.append(f"{quantizer.op}, GB/s: {text}")
    return lines


def cpu_lines(results: Results) -> list[str]:
    """Ratios of our times to those of aten's packed GEMMs, of F.linear in two dtypes, and of ours
    with bfloat16 activations. The aims are 1.0 to aten, 1.3 to F.linear in bfloat16 from M = 64 on,
    and 1.5 for float32 over bfloat16."""
    lines = []
    for scheme in results.schemes_of(GEMM):
        in_bf16 = Scheme(scheme.bits, scheme.group_size, scheme.zero_mode, "bfloat16")
        times = results.of(Timed(GEMM, scheme))
        others = [
            over(times, results.of(timed))
            for timed in (
                Timed(ATEN, in_bf16),
                dense("bfloat16"),
                dense("float32"),
                Timed(GEMM, in_bf16),
            )
        ]
        for point in (p for p in times if any(p in ratios for ratios in others)):
            cells = (f"{r[point]:.2f}" if point in r else "-" for r in others)
            aten, bf16, fp32, ours = cells
            lines.append(
                f"{point.n:>5} x {point.k:<5} {point.m:3} {scheme.name:18} {aten:>6} {bf16:>16} "
                f"{fp32:>7} {ours:>15}"
            )
    header = f"{'N x K':>11} {'M':>5} {'ours':18} / aten  / F.linear bf16  / fp32  / ours in bf16"
    return [header, *lines] if lines else []
