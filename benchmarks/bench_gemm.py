"""fpA_intB_gemm on CUDA at the shapes of the peer timings, with cuBLAS and aten's int4 GEMM in the
same run.

Prints, for each (N, K, M), the selected configuration, the fastest measured one, cuBLAS, aten, the
best peer of benchmarks/peers and the roofline; writes every row as JSON (format: design.md
section 8).
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from shapes import Point, is_mma_sync_peer, peer_rows, peers_of
from timing import Graph, Timing, copies_for, measured_ceilings, time_interleaved

import mixed_gemm

ATEN_MAX_M = 512  # seconds per point beyond it, and 20 times behind
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


class Weights:
    """Enough random copies of one quantized weight, and of its dense form."""

    def __init__(
        self, n: int, k: int, bits: int, group: int, zero_mode: str | None, dtype: torch.dtype
    ) -> None:
        self.n, self.k, self.bits, self.group, self.zero_mode = n, k, bits, group, zero_mode
        self.dtype = dtype
        self.groups = 1 if group == -1 else -(-k // group)
        packed_bytes = n * k * bits // 8
        q = torch.randint(
            -(2 ** (bits - 1)), 2 ** (bits - 1), (n, k), device="cuda", dtype=torch.int8
        )
        first = mixed_gemm.pack_weights(q, bits)
        del q
        count = copies_for(packed_bytes)
        # Other bytes in each copy, all valid: rolled rows of the packed weight.
        self.packed = [torch.roll(first, i, 0) for i in range(count)]
        self.scales = [self._random() * 0.01 for _ in range(count)]
        self.zeros = [None if zero_mode is None else self._random() for _ in range(count)]

    def _random(self) -> torch.Tensor:
        return torch.rand(self.groups, self.n, device="cuda", dtype=self.dtype) + 0.5

    def calls(self, a: torch.Tensor, config: str | None) -> list[Any]:
        op = (
            torch.ops.mixed_gemm.fpA_intB_gemm
            if config is None
            else torch.ops.mixed_gemm.fpA_intB_gemm_config
        )
        extra = {} if config is None else {"config": config}
        options = {
            "bits": self.bits,
            "group_size": self.group,
            "zero_mode": self.zero_mode or "sub",
            **extra,
        }
        return [
            lambda p=p, s=s, z=z: op(a, p, s, z, **options)
            for p, s, z in zip(self.packed, self.scales, self.zeros, strict=True)
        ]

    def bytes(self, m: int) -> float:
        parameters = self.groups * self.n * 2 * (1 if self.zero_mode is None else 2)
        return self.n * self.k * self.bits / 8 + parameters + 2 * m * (self.n + self.k)


def candidate_names(w: Weights, m: int, most: int) -> tuple[str, list[str]]:
    plan = mixed_gemm.plan(
        m,
        w.n,
        w.k,
        dtype=w.dtype,
        bits=w.bits,
        group_size=w.group,
        zero_mode=w.zero_mode or "none",
        device="cuda",
    )
    names = [c.config for c in plan.candidates]
    plain = [name for name in names if "_serial" not in name and "_parallel" not in name]
    return plan.selected, list(dict.fromkeys([*names[:most], *plain]))


def aten_int4_calls(n: int, k: int, m: int) -> list[Any]:
    """aten::_weight_int4pack_mm (bf16, group 128), the kernel that PyTorch ships."""
    raw = torch.randint(0, 256, (n, k // 2), device="cuda", dtype=torch.uint8)
    a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    count = copies_for(n * k // 2)
    packed = [
        torch.ops.aten._convert_weight_to_int4pack(torch.roll(raw, i, 0), 8) for i in range(count)
    ]
    scales = torch.rand(k // 128, n, 2, device="cuda", dtype=torch.bfloat16)
    return [lambda p=p: torch.ops.aten._weight_int4pack_mm(a, p, 128, scales) for p in packed]


def cublas_calls(n: int, k: int, m: int, dtype: torch.dtype) -> list[Any]:
    a = torch.randn(m, k, device="cuda", dtype=dtype)
    weights = [torch.randn(n, k, device="cuda", dtype=dtype) for _ in range(copies_for(2 * n * k))]
    return [lambda w=w: torch.nn.functional.linear(a, w) for w in weights]


def measure(w: Weights, m: int, args: argparse.Namespace) -> tuple[str, dict[str, Timing]]:
    a = torch.randn(m, w.k, device="cuda", dtype=w.dtype)
    selected, names = candidate_names(w, m, args.candidates)
    pool = (
        torch.cuda.graph_pool_handle()
    )  # shared: at large M the outputs of all candidates would not fit
    graphs = {name: Graph(w.calls(a, name), pool) for name in names}
    graphs["cublas"] = Graph(cublas_calls(w.n, w.k, m, w.dtype), pool)
    if w.bits == 4 and m <= ATEN_MAX_M:
        graphs["aten_int4"] = Graph(aten_int4_calls(w.n, w.k, m), pool)
    return selected, time_interleaved(graphs, args.rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bits", type=int, default=4)
    parser.add_argument("--group", type=int, default=128)
    parser.add_argument("--zeros", choices=("sub", "add"))
    parser.add_argument("--dtype", choices=DTYPES, default="float16")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--candidates",
        type=int,
        default=6,
        help="predicted-best configurations to measure besides plain tiles",
    )
    parser.add_argument("--max-m", type=int, default=1 << 30)
    parser.add_argument("--shapes", help="N:K,N:K to restrict to")
    parser.add_argument("--commit", default=None)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()

    ceilings = measured_ceilings()
    print(f"{torch.cuda.get_device_name()}: {ceilings}", file=sys.stderr)
    peers = peers_of(args.bits, args.group)
    only = {tuple(map(int, s.split(":"))) for s in args.shapes.split(",")} if args.shapes else None
    points = sorted(
        p for p in peer_rows("peers_h200") if p[2] <= args.max_m and (only is None or p[:2] in only)
    )
    rows: list[dict[str, Any]] = []
    names = ("us", "roof", "cublas", "aten", "peer", "mma.sync")
    header = f"{'N':>6} {'K':>6} {'M':>5} " + " ".join(f"{name:>8}" for name in names)
    header += "  ratio to peer, mma.sync, cublas, best; config (best)"
    print(header)
    weights: Weights | None = None
    for point in points:
        n, k, m = point
        if weights is None or (weights.n, weights.k) != (n, k):
            weights = None
            torch.cuda.empty_cache()
            weights = Weights(n, k, args.bits, args.group, args.zeros, DTYPES[args.dtype])
        selected, timings = measure(weights, m, args)
        roofline = max(
            weights.bytes(m) / (ceilings["read_gb_per_s"] * 1e3),
            2e-6 * m * n * k / ceilings["dense_fp16_tflops"],
        )
        rows += [
            {
                "op": "fpA_intB_gemm" if name not in ("cublas", "aten_int4") else name,
                "kernel": name,
                "selected": name == selected,
                "dtype": "bfloat16" if name == "aten_int4" else args.dtype,
                "bits": 16 if name == "cublas" else args.bits,
                "group_size": None if name == "cublas" else args.group,
                "zero_mode": args.zeros,
                "N": n,
                "K": k,
                "M": m,
                "us": round(t.us, 2),
                "us_min": round(t.us_min, 2),
                "us_max": round(t.us_max, 2),
                "roofline_us": round(roofline, 2),
            }
            for name, t in timings.items()
        ]
        print_point(point, selected, timings, roofline, peers.get(point, {}))
        if args.out:  # after every point: a run that is cut short keeps what it has
            args.out.write_text(json.dumps({"meta": meta(ceilings, args), "rows": rows}, indent=0))


def print_point(
    point: Point,
    selected: str,
    timings: dict[str, Timing],
    roofline: float,
    peers: dict[str, float],
) -> None:
    us = timings[selected].us
    own = {n: t.us for n, t in timings.items() if n not in ("cublas", "aten_int4")}
    best = min(own, key=lambda name: own[name])
    nothing = float("nan")
    peer = min(peers.values(), default=nothing)
    mma_sync = min((t for name, t in peers.items() if is_mma_sync_peer(name)), default=nothing)
    cublas = timings["cublas"].us
    aten = timings["aten_int4"].us if "aten_int4" in timings else float("nan")
    n, k, m = point
    times = " ".join(f"{t:8.1f}" for t in (us, roofline, cublas, aten, peer, mma_sync))
    ratios = " ".join(f"{us / t:5.2f}" for t in (peer, mma_sync, cublas, own[best]))
    better = "" if best == selected else f" ({best} {own[best]:.1f})"
    print(f"{n:6} {k:6} {m:5} {times}  {ratios}  {selected}{better}", flush=True)


def meta(ceilings: dict[str, float], args: argparse.Namespace) -> dict[str, Any]:
    def output(*command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    return {
        "gpu": torch.cuda.get_device_name(),
        "driver": output(
            "nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"
        ).splitlines()[0],
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "commit": args.commit or output("git", "rev-parse", "HEAD") or "unknown",
        "date": datetime.date.today().isoformat(),
        "ceilings": ceilings,
    }


if __name__ == "__main__":
    main()
