"""Time the GEMM on this machine (``bench``): what ``fpA_intB_gemm`` takes with the kernel that
``plan()`` picks, next to torch's dense GEMM in the same run.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from .. import _library
from .._progress import Progress, track
from ..weights.scheme import Scheme
from .operands import Operands, Weight, copies_for
from .planning import plan
from .timing import Call, Timing, time_interleaved, timers_of

DEFAULT_M = (1, 16, 128, 1024)
ROUNDS = 9
Calls = Sequence[Call]


@dataclass(frozen=True)
class BenchResult:
    """Timings of one weight.

    Attributes:
        meta: the machine: device, torch, threads, date, measured ceilings.
        rows: two for each M, our op and torch's dense GEMM (``op`` is "fpA_intB_gemm", "F.linear"),
            each with ``kernel, selected, dtype, bits, group_size, zero_mode, N, K, M, us, us_min,
            us_max, roofline_us``: microseconds of one call, median and extremes.
    """

    meta: dict[str, Any]
    rows: tuple[dict[str, Any], ...]

    def __str__(self) -> str:
        lines = [f"{'M':>5} {'us':>10} {'dense us':>10} {'speedup':>8} {'roofline':>9}  kernel"]
        for ours, dense in zip(self.rows[::2], self.rows[1::2], strict=True):
            lines.append(
                f"{ours['M']:>5} {ours['us']:>10.2f} {dense['us']:>10.2f} "
                f"{dense['us'] / ours['us']:>7.2f}x {ours['roofline_us'] / ours['us']:>9.1%}  "
                f"{ours['kernel']}"
            )
        return "\n".join(lines)


def _times(variants: dict[str, Calls], rounds: int, device: torch.device) -> dict[str, Timing]:
    return time_interleaved(timers_of(variants, device), rounds)


def _ceilings(device: torch.device, dtype: torch.dtype) -> dict[str, float]:
    """Measure the ceilings of this machine now: a pure read, and a dense square product in
    ``dtype``, or in float32 where that is faster (a CPU without instructions for ``dtype``)."""
    on_gpu = device.type == "cuda"
    source = torch.ones(1 << (29 if on_gpu else 26), device=device)
    side = 8192 if on_gpu else 1024
    squares = [torch.randn(side, side, device=device, dtype=x) for x in (dtype, torch.float32)]
    variants: dict[str, Calls] = {"read": [lambda: torch.sum(source)]}
    variants |= {str(x.dtype): [partial(torch.mm, x, x)] for x in squares}
    us = {name: timing.us_min for name, timing in _times(variants, 5, device).items()}
    return {
        "read_gb_per_s": round(1e-3 * source.nbytes / us.pop("read"), 1),
        "dense_tflops": round(2e-6 * side**3 / min(us.values()), 3),
    }


def _rows(
    operands: Operands, dense: Sequence[torch.Tensor], m: int, ceilings: dict[str, float]
) -> list[dict[str, Any]]:
    w, s = operands.weight, operands.weight.scheme
    chosen = plan(m, w.n, w.k, dtype=w.dtype, device=operands.device, **s.plan_options)
    a = operands.activations(m)
    variants: dict[str, Calls] = {
        "fpA_intB_gemm": operands.calls(a, chosen.selected),
        "F.linear": [partial(torch.nn.functional.linear, a, x) for x in dense],
    }
    schemes: dict[str, dict[str, Any]] = {
        "fpA_intB_gemm": {
            "kernel": chosen.selected,
            **s.plan_options,
            "zero_mode": s.zero_mode if s.has_zeros else None,
        },
        "F.linear": {
            "kernel": "dense",
            "bits": 8 * w.dtype.itemsize,
            "group_size": None,
            "zero_mode": None,
        },
    }
    nbytes = {"fpA_intB_gemm": operands.nbytes, "F.linear": dense[0].nbytes}
    rows = []
    for op, t in _times(variants, ROUNDS, operands.device).items():
        moved = nbytes[op] + m * (w.n + w.k) * w.dtype.itemsize
        reading = moved / (ceilings["read_gb_per_s"] * 1e3)
        computing = 2e-6 * m * w.n * w.k / ceilings["dense_tflops"]
        rows.append(
            {
                "op": op,
                **schemes[op],
                "selected": op == "fpA_intB_gemm",
                "dtype": w.dtype_name,
                "N": w.n,
                "K": w.k,
                "M": m,
                "us": round(t.us, 2),
                "us_min": round(t.us_min, 2),
                "us_max": round(t.us_max, 2),
                "roofline_us": round(max(reading, computing), 3),
            }
        )
    return rows


def bench(
    n: int,
    k: int,
    *,
    m: Sequence[int] = DEFAULT_M,
    dtype: torch.dtype = torch.float16,
    bits: int = 4,
    group_size: int = 128,
    zero_mode: str | None = None,
    device: torch.device | str | None = None,
    progress: Progress = True,
) -> BenchResult:
    """Time ``[m, k] @ [n, k].T`` with a quantized and with a dense weight. Copies of the weights
    are rotated, so that no cache serves them; on CUDA by replay of a graph.

    Args:
        n: output channels. k: input channels. m: rows of the activations.
        dtype: of the activations and the dense weight. bits, group_size, zero_mode: as in ``plan``.
        device: None is the current CUDA device when there is one, else the CPU.
        progress: True shows a bar on a terminal, "force" always.

    Raises:
        ValueError: the problem is refused, or ``m`` holds no positive number.
        ImportError: the library did not load.
    """
    _library.require()
    if not m or min(m) < 1:
        raise ValueError(f"bench: m must be positive, got {list(m)}")
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    scheme = Scheme.weight_only(bits, group_size, zero_mode or "none")
    plan(  # refuses before anything is allocated
        1, n, k, dtype=dtype, bits=bits, group_size=group_size, zero_mode=zero_mode, device=where
    )
    rows: list[dict[str, Any]] = []
    with torch.no_grad():
        ceilings = _ceilings(where, dtype)
        operands = Operands(Weight(n, k, scheme, dtype), where)
        first = torch.randn(n, k, device=where, dtype=dtype)
        dense = [first, *(first.clone() for _ in range(copies_for(first.nbytes, where) - 1))]
        for rows_of_a in track(sorted(set(m)), "timing", progress):
            rows += _rows(operands, dense, rows_of_a, ceilings)
    meta = {
        "device": torch.cuda.get_device_name(where) if where.type == "cuda" else "cpu",
        "torch": str(torch.__version__),
        "mixed_gemm": _library.package_version(),
        "threads": torch.get_num_threads(),
        "date": datetime.date.today().isoformat(),
        "ceilings": ceilings,
    }
    return BenchResult(meta, tuple(rows))
