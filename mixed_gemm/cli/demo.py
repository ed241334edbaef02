"""``mixed-gemm demo``: a self-test after installing, in a few seconds, with nothing to download."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import Device, Json, parse_device
from .output import print_json, print_table, reports_errors, say

if TYPE_CHECKING:
    import torch

SCHEMES = ((8, -1, "none"), (4, 128, "none"), (4, 32, "sub"))  # bits, group size, zero mode
ROWS = (1, 64)
REPEATS = 7


@dataclass(frozen=True)
class Check:
    """One product, checked against float64. ``error_ratio`` above 1 means a wrong kernel."""

    scheme: str
    m: int
    kernel: str
    error_ratio: float
    weight_mb: float
    dense_mb: float
    rounding: float  # rms error of the weight over its rms
    ms: float
    dense_ms: float

    @property
    def ok(self) -> bool:
        return self.error_ratio <= 1


def check(n: int, k: int, device: torch.device) -> list[Check]:
    import torch

    import mixed_gemm
    from mixed_gemm import Scheme, reference
    from mixed_gemm.selection.timing import time_interleaved, timers_of

    dtype = torch.float16 if device.type == "cuda" else torch.float32
    generator = torch.Generator().manual_seed(0)
    weight = (torch.randn(n, k, generator=generator) / k**0.5).to(device, dtype)
    results = []
    for scheme in (Scheme.weight_only(*row) for row in SCHEMES):
        q, scales, zeros = mixed_gemm.quantize_weight(
            weight, scheme.bits, scheme.group_size, symmetric=not scheme.has_zeros
        )
        packed = mixed_gemm.pack_weights(q, scheme.bits)
        options: dict[str, Any] = {"group_size": scheme.group_size}
        rounded = reference.dequantize(q, scales, zeros, **options)
        rounding = (rounded - weight.double()).norm() / weight.double().norm()
        parts = (packed, scales, zeros)
        for m in ROWS:
            a = torch.randn(m, k, generator=generator).to(device, dtype)

            def run(a: torch.Tensor = a, parts: Any = parts, s: Scheme = scheme) -> Any:
                return mixed_gemm.fpA_intB_gemm(a, *parts, **s.gemm_options)

            def dense(a: torch.Tensor = a) -> Any:
                return torch.nn.functional.linear(a, weight)

            arguments = (a, q, scales, zeros)
            expected = reference.fpA_intB_gemm(*arguments, **options)
            bound = reference.error_bound(*arguments, **options)
            timers = timers_of({"ours": [run], "dense": [dense]}, device)
            times = time_interleaved(timers, REPEATS)
            results.append(
                Check(
                    scheme=str(scheme),
                    m=m,
                    kernel=mixed_gemm.plan(
                        m, n, k, dtype=dtype, device=device, **scheme.plan_options
                    ).selected,
                    error_ratio=reference.error_ratio(run(), expected, bound),
                    weight_mb=sum(x.nbytes for x in parts if x is not None) / 1e6,
                    dense_mb=weight.nbytes / 1e6,
                    rounding=float(rounding),
                    ms=times["ours"].us * 1e-3,
                    dense_ms=times["dense"].us * 1e-3,
                )
            )  # fmt: skip
    return results


@reports_errors
def command(
    n: Annotated[int, typer.Option(help="Output channels.", min=1, max=2**31 - 1)] = 2048,
    k: Annotated[int, typer.Option(help="Input channels.", min=128, max=2**31 - 1)] = 2048,
    device: Device = "",
    json: Json = False,
) -> None:
    """Quantize a random layer, multiply with it, check it all against float64.

    Fails when a result is outside its error bound.
    """
    where = parse_device(device)
    import torch

    with torch.no_grad():
        results = check(n, k, where)
    failed = [r for r in results if not r.ok]
    if json:
        rows = [{**vars(r), "ok": r.ok} for r in results]
        print_json({"device": str(where), "n": n, "k": k, "ok": not failed, "checks": rows})
    else:
        print_table(
            f"a random {n} x {k} layer on {where}",
            ("weights", "M", "kernel", "error / bound", "MB", "rounding", "ms", "dense ms"),
            [
                (r.scheme, r.m, r.kernel, f"{r.error_ratio:.3f} {'ok' if r.ok else 'WRONG'}",
                 f"{r.weight_mb:.2f} of {r.dense_mb:.2f}", f"{r.rounding:.2%}", f"{r.ms:.3f}",
                 f"{r.dense_ms:.3f}")
                for r in results
            ],
        )  # fmt: skip
        say(f"{len(results) - len(failed)} of {len(results)} within the error bound")
    if failed:
        raise typer.Exit(1)
