"""Times that other kernels took on the GPU model named in the file: benchmarks/peers. Imports no
torch."""

from __future__ import annotations

import csv
import functools
from pathlib import Path

from .row import Point

PEERS = Path(__file__).parent / "peers"


@functools.cache
def peer_rows(name: str) -> dict[Point, dict[str, float]]:
    """Read benchmarks/peers/<name>.csv: microseconds by kernel for each (N, K, M)."""
    rows: dict[Point, dict[str, float]] = {}
    with (PEERS / f"{name}.csv").open() as file:
        for row in csv.DictReader(file):
            point = Point(int(row["N"]), int(row["K"]), int(row["M"]))
            rows.setdefault(point, {})[row["kernel"]] = float(row["us"])
    return rows


@functools.cache
def peers_of(bits: int, group_size: int) -> dict[Point, dict[str, float]]:
    """Return the peer timings that are comparable: the same weight width and group size."""
    scheme = f"w{bits}_" + ("channel" if group_size == -1 else f"g{group_size}")
    rows: dict[Point, dict[str, float]] = {}
    for name in ("peers_h200", "peers_w8a16_and_groups_h200"):
        for point, kernels in peer_rows(name).items():
            for kernel, us in kernels.items():
                aten = bits == 4 and kernel == f"aten_weight_int4pack_mm_bf16_g{group_size}"
                if (scheme in kernel or aten) and is_peer(kernel):
                    rows.setdefault(point, {})[kernel] = us
    return rows


def times_of(name: str, kernel: str) -> dict[Point, float]:
    """Return the microseconds of one kernel in one file of peers."""
    return {point: us[kernel] for point, us in peer_rows(name).items() if kernel in us}


def is_peer(kernel: str) -> bool:
    """Tell whether a column is a peer: neither our own probe nor the dense fp16 GEMM."""
    return not kernel.startswith(("own_", "cublas_"))


def is_mma_sync_peer(kernel: str) -> bool:
    """Tell whether a peer is without wgmma, so that Ampere instructions can be expected to match
    it."""
    return is_peer(kernel) and not kernel.startswith(("vllm_machete_", "cutlass3_"))
