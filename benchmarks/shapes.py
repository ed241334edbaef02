"""The points that benchmarks measure: those of the peer timings in benchmarks/peers."""

from __future__ import annotations

import csv
from pathlib import Path

PEERS = Path(__file__).parent / "peers"

Point = tuple[int, int, int]  # N, K, M


def peer_rows(name: str) -> dict[Point, dict[str, float]]:
    """benchmarks/peers/<name>.csv: microseconds by kernel for each (N, K, M)."""
    rows: dict[Point, dict[str, float]] = {}
    with (PEERS / f"{name}.csv").open() as file:
        for row in csv.DictReader(file):
            point = int(row["N"]), int(row["K"]), int(row["M"])
            rows.setdefault(point, {})[row["kernel"]] = float(row["us"])
    return rows


def is_peer(kernel: str) -> bool:
    """Neither our own probe nor the dense fp16 GEMM."""
    return not kernel.startswith(("own_", "cublas_"))


def is_mma_sync_peer(kernel: str) -> bool:
    """A peer without wgmma, which Ampere instructions can be expected to match."""
    return is_peer(kernel) and not kernel.startswith(("vllm_machete_", "cutlass3_"))
