"""fpA_intB_gemm on the CPU, with F.linear (float32, bfloat16) and aten's packed GEMMs in one run.

Every round calls every variant once, in random order, on the next copy of its weight (the copies
together exceed the caches), so drift of the clock, of the neighbours and of what ran before hits
all of them. Prints medians, the least times, and ratios to F.linear in float32; writes every row as
JSON (format: docs/speed.md). --check then prints, per M, the targets of docs/speed.md: our times
over those of aten's packed ops and of F.linear, from the least times, which a busy machine disturbs
less than the medians.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import random
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

import mixed_gemm

ROTATE_BYTES = 256e6  # weights of one variant, all copies
ATEN_GROUPS = (32, 64, 128, 256)
DENSE_DTYPES = ("float32", "bfloat16")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
Call = Callable[[], object]


@dataclass(frozen=True)
class Variant:
    """One kernel on one quantization; `calls` runs it on each copy of the weight."""

    op: str
    kernel: str
    dtype: str
    bits: int
    group_size: int | None
    weight_bytes: int
    calls: Sequence[Call]

    @property
    def label(self) -> str:
        bits = f" int{self.bits}" if self.bits < 16 else ""
        group = "" if self.group_size is None else f" g{self.group_size}"
        return f"{self.op} {self.dtype}{bits}{group}"


def copies_of(weight: torch.Tensor) -> list[torch.Tensor]:
    count = max(2, int(ROTATE_BYTES // (weight.numel() * weight.element_size())) + 1)
    return [weight, *(weight.clone() for _ in range(count - 1))]


class Weights:
    """The quantized weight and its dense forms, made once for all M."""

    def __init__(self, n: int, k: int, groups: list[int]) -> None:
        self.n, self.k, self.groups = n, k, groups
        q = {b: torch.randint(-(1 << b) // 2, (1 << b) // 2, (n, k)).to(torch.int8) for b in (4, 8)}
        self.packed = {b: copies_of(mixed_gemm.pack_weights(x, b)) for b, x in q.items()}
        self.dense = {d: copies_of(torch.randn(n, k).to(DTYPES[d])) for d in DENSE_DTYPES}
        self.aten_int8 = copies_of(q[8])
        to_int4 = torch.ops.aten._convert_weight_to_int4pack_for_cpu
        self.aten_int4 = copies_of(to_int4((q[4] + 8).to(torch.int32), 1))

    def variants(self, m: int, dtypes: list[str]) -> list[Variant]:
        ours = [self._ours(m, d, b, g) for d in dtypes for b in (4, 8) for g in self.groups]
        aten = [self._aten_int4(m, g) for g in self.groups if g in ATEN_GROUPS]
        return [*(self._linear(m, d) for d in DENSE_DTYPES), *ours, self._aten_int8(m), *aten]

    def _linear(self, m: int, dtype: str) -> Variant:
        a = torch.randn(m, self.k).to(DTYPES[dtype])
        linear, size = torch.nn.functional.linear, a.element_size()
        calls = [partial(linear, a, w) for w in self.dense[dtype]]
        return Variant("F.linear", "dense", dtype, 8 * size, None, self.n * self.k * size, calls)

    def _ours(self, m: int, dtype: str, bits: int, group: int) -> Variant:
        a = torch.randn(m, self.k).to(DTYPES[dtype])
        scales = torch.rand(1 if group == -1 else -(-self.k // group), self.n).to(DTYPES[dtype])
        op = partial(torch.ops.mixed_gemm.fpA_intB_gemm, bits=bits, group_size=group)
        plan = mixed_gemm.plan(
            m, self.n, self.k, dtype=dtype, bits=bits, group_size=group, device="cpu"
        )
        calls = [partial(op, a, w, scales) for w in self.packed[bits]]
        size = self.n * self.k * bits // 8 + scales.numel() * scales.element_size()
        return Variant("fpA_intB_gemm", str(plan.selected), dtype, bits, group, size, calls)

    def _aten_int8(self, m: int) -> Variant:
        a, scales = torch.randn(m, self.k).bfloat16(), torch.rand(self.n).bfloat16()
        op = torch.ops.aten._weight_int8pack_mm
        calls = [partial(op, a, w, scales) for w in self.aten_int8]
        return Variant("aten", "_weight_int8pack_mm", "bfloat16", 8, -1, self.n * self.k, calls)

    def _aten_int4(self, m: int, group: int) -> Variant:
        a = torch.randn(m, self.k).bfloat16()
        qparams = torch.rand(self.k // group, self.n, 2).bfloat16()
        op = torch.ops.aten._weight_int4pack_mm_for_cpu
        calls = [partial(op, a, w, group, qparams) for w in self.aten_int4]
        size = self.n * self.k // 2 + qparams.numel() * 2
        name = "_weight_int4pack_mm_for_cpu"
        return Variant("aten", name, "bfloat16", 4, group, size, calls)


def time_interleaved(variants: list[Variant], rounds: int) -> list[list[float]]:
    """Microseconds of every round for every variant; the first round is a warm-up."""
    samples: list[list[float]] = [[] for _ in variants]
    order = list(range(len(variants)))
    for i in range(rounds + 1):
        random.shuffle(order)
        for j in order:
            call = variants[j].calls[i % len(variants[j].calls)]
            start = time.perf_counter()
            call()
            samples[j].append((time.perf_counter() - start) * 1e6)
    return [us[1:] for us in samples]


def measured_ceilings() -> dict[str, float]:
    """What this machine reaches now: reads from memory, and products of 2048 x 2048, each the
    better of torch's and ours (on a Zen 5 torch.sum reads two thirds of what our kernels do, and
    MKL does half of the float32 products)."""
    size, rows = 2048, 1 << 15
    source = torch.ones(1 << 27)
    weight = mixed_gemm.pack_weights(torch.zeros(rows, size, dtype=torch.int8), 8)  # 64 MB
    packed = mixed_gemm.pack_weights(torch.zeros(size, size, dtype=torch.int8), 4)

    def best(call: Call) -> float:
        times = []
        for _ in range(5):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return min(times)

    def ours(a: torch.Tensor, b: torch.Tensor, n: int, bits: int) -> Call:
        scales = torch.ones(1, n, dtype=a.dtype)
        op = torch.ops.mixed_gemm.fpA_intB_gemm
        return partial(op, a, b, scales, bits=bits, group_size=-1)

    def gflops(dtype: torch.dtype) -> float:
        a = torch.randn(size, size).to(dtype)
        least = min(best(lambda: a @ a), best(ours(a, packed, size, 4)))
        return round(2e-9 * size**3 / least, 1)

    one = torch.randn(1, size).bfloat16()
    reads = (
        source.numel() * 4e-9 / best(partial(torch.sum, source)),
        weight.numel() * 1e-9 / best(ours(one, weight, rows, 8)),
    )
    return {
        "read_gb_per_s": round(max(reads), 2),
        **{f"dense_{dtype}_gflops": gflops(DTYPES[dtype]) for dtype in DENSE_DTYPES},
    }


def row(
    v: Variant, us: list[float], n: int, k: int, m: int, ceilings: dict[str, float]
) -> dict[str, Any]:
    activations = m * (n + k) * DTYPES[v.dtype].itemsize
    dense = v.dtype if v.dtype in DENSE_DTYPES else "float32"
    roofline = max(
        (v.weight_bytes + activations) / (ceilings["read_gb_per_s"] * 1e3),
        2e-3 * m * n * k / ceilings[f"dense_{dense}_gflops"],
    )
    return {
        "op": v.op,
        "kernel": v.kernel,
        "selected": v.op == "fpA_intB_gemm",
        "dtype": v.dtype,
        "bits": v.bits,
        "group_size": v.group_size,
        "zero_mode": None,
        "N": n,
        "K": k,
        "M": m,
        "us": round(statistics.median(us), 1),
        "us_min": round(min(us), 1),
        "us_max": round(max(us), 1),
        "roofline_us": round(roofline, 1),
    }


def print_rows(variants: list[Variant], rows: list[dict[str, Any]]) -> None:
    linear = rows[0]["us"]
    for variant, r in zip(variants, rows, strict=True):
        ms, low, high, roof = (r[x] / 1e3 for x in ("us", "us_min", "us_max", "roofline_us"))
        print(
            f"{r['M']:5} {variant.label:33} {ms:9.3f} [{low:8.3f}, {high:8.3f}]"
            f" {linear / r['us']:6.2f} x {roof:8.3f}  {variant.kernel}",
            flush=True,
        )


def least_us(rows: list[dict[str, Any]], **wanted: object) -> float | None:
    found = [r["us_min"] for r in rows if all(r[key] == value for key, value in wanted.items())]
    return min(found) if found else None


def print_targets(rows: list[dict[str, Any]]) -> None:
    """Ratios of least times: 1.0 to aten, 1.3 to F.linear bfloat16 from M = 64 on, and float32
    against bfloat16 activations (1.5)."""
    print(f"{'M':>5} {'ours':22} / aten  / F.linear bf16  / F.linear fp32  / ours bf16")
    ours = [r for r in rows if r["op"] == "fpA_intB_gemm"]
    for r in ours:
        shape = {"M": r["M"], "N": r["N"], "K": r["K"]}
        scheme = {"bits": r["bits"], "group_size": r["group_size"]}
        others = (
            least_us(rows, op="aten", **shape, **scheme),
            least_us(rows, op="F.linear", dtype="bfloat16", **shape),
            least_us(rows, op="F.linear", dtype="float32", **shape),
            least_us(ours, dtype="bfloat16", **shape, **scheme),
        )
        ratios = ("     -" if us is None else f"{r['us_min'] / us:6.2f}" for us in others)
        label = f"{r['dtype']} int{r['bits']} g{r['group_size']}"
        print(f"{r['M']:5} {label:22} {'          '.join(ratios)}")


def meta(ceilings: dict[str, float], commit: str | None) -> dict[str, Any]:
    git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "instruction_set": mixed_gemm.env().build["cpu_instruction_set"],
        "torch_instruction_set": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "commit": commit or git.stdout.strip() or "unknown",
        "date": datetime.date.today().isoformat(),
        "ceilings": ceilings,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=4096)
    parser.add_argument("--k", type=int, default=4096)
    parser.add_argument("--m", type=int, nargs="+", default=[1, 4, 16, 64, 256])
    parser.add_argument("--groups", type=int, nargs="+", default=[128, -1])
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=["float32", "bfloat16"])
    parser.add_argument("--threads", type=int, help="torch.set_num_threads")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--commit", default=None)
    parser.add_argument("--check", action="store_true", help="ratios to the targets at the end")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()

    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    random.seed(0)
    ceilings = measured_ceilings()
    weights = Weights(args.n, args.k, args.groups)
    print(f"N={args.n} K={args.k}, {torch.get_num_threads()} threads, {ceilings}")
    print(f"{'M':>5} {'':33} {'ms':>9} [min, max] {'':9} vs F.linear fp32, roofline ms")
    rows: list[dict[str, Any]] = []
    for m in args.m:
        variants = weights.variants(m, args.dtypes)
        samples = time_interleaved(variants, args.rounds)
        new = [
            row(v, us, args.n, args.k, m, ceilings) for v, us in zip(variants, samples, strict=True)
        ]
        print_rows(variants, new)
        rows += new
        if args.out:  # after every M: a run that is cut short keeps what it has
            result = {"meta": meta(ceilings, args.commit), "rows": rows}
            args.out.write_text(json.dumps(result, indent=0))
    if args.check:
        print_targets(rows)


if __name__ == "__main__":
    main()
