"""Writes the results part of README.md from a JSON file of bench_gemm.py: a table of the selected
configuration against the peers, cuBLAS and the roofline, one row for each (N, K, M)."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from shapes import is_mma_sync_peer, peers_of

README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- results: benchmarks/report.py writes this part -->", "<!-- end of results -->"


def table(rows: list[dict[str, Any]], shown: set[int]) -> list[str]:
    first = next(r for r in rows if r["selected"])
    peers = peers_of(first["bits"], first["group_size"])
    cublas = {(r["N"], r["K"], r["M"]): r["us"] for r in rows if r["op"] == "cublas"}
    lines = [
        "| N x K | M | us | best peer | best mma.sync peer | cuBLAS fp16 | roofline | kernel |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        point = r["N"], r["K"], r["M"]
        if not r["selected"] or r["M"] not in shown:
            continue
        us = r["us"]
        peer = min(peers[point].values())
        mma_sync = min(t for name, t in peers[point].items() if is_mma_sync_peer(name))
        ratios = " | ".join(f"{us / t:.2f}" for t in (peer, mma_sync, cublas[point]))
        lines.append(
            f"| {r['N']} x {r['K']} | {r['M']} | {us:.1f} | {ratios} | {us / r['roofline_us']:.2f} "
            f"| {r['kernel']} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--m", default="1,4,8,16,32,64,128,512,1024,4096")
    args = parser.parse_args()
    data = json.loads(args.results.read_text())
    meta, rows = data["meta"], data["rows"]
    first = next(r for r in rows if r["selected"])
    c = meta["ceilings"]
    text = [
        f"W{first['bits']}A16, group {first['group_size']}, {first['dtype']}, {meta['gpu']}, torch "
        f"{meta['torch']}, CUDA {meta['cuda']}. The columns after `us` are ratios of our time to "
        "theirs: below 1 is faster. cuBLAS and the roofline "
        f"({c['read_gb_per_s']:.0f} GB/s read, {c['dense_fp16_tflops']:.0f} TFLOP/s dense fp16) "
        "were measured in the same run; the peers' times on the same GPU model are those of "
        f"`benchmarks/peers/`. From `{args.results.relative_to(README.parent)}`.",
        "",
        *table(rows, {int(m) for m in args.m.split(",")}),
    ]
    readme = README.read_text()
    head, rest = readme.split(BEGIN)
    _, tail = rest.split(END)
    README.write_text(head + BEGIN + "\n\n" + "\n".join(text) + "\n\n" + END + tail)


if __name__ == "__main__":
    main()
