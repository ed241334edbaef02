"""What a measured time is compared with: the peers' timings, cuBLAS and the bandwidth floor."""

from __future__ import annotations

from dataclasses import dataclass

from results import Results
from schemes import Scheme
from shapes import Point, is_mma_sync_peer, peer_rows

FLOOR_GB_PER_S = 4400.0  # the bandwidth that the floor of docs/speed.md is stated for


@dataclass(frozen=True)
class References:
    """What a time is compared with, in us; None where nobody measured it.

    Attributes:
        peer: the best peer of the same weight width and group size.
        mma_sync: the best of those without wgmma.
        cublas: the dense GEMM in the same dtype, of the same run where that has it.
        floor: the bytes that must move, at FLOOR_GB_PER_S.
    """

    peer: float | None
    mma_sync: float | None
    cublas: float | None
    floor: float


def references(results: Results, scheme: Scheme) -> dict[Point, References]:
    """For every point that `results` holds of the scheme."""
    peers, dense = scheme.peers(), peer_rows("peers_h200")
    measured = results.cublas.get(scheme.dtype, {})
    short = scheme.name.rsplit("_", 1)[1]

    def at(point: Point) -> References:
        here = peers.get(point, {})
        return References(
            peer=min(here.values(), default=None),
            mma_sync=min((us for p, us in here.items() if is_mma_sync_peer(p)), default=None),
            cublas=measured.get(point, dense.get(point, {}).get(f"cublas_{short}")),
            floor=scheme.traffic_bytes(point) / (FLOOR_GB_PER_S * 1e3),
        )

    return {point: at(point) for point in results.selected[scheme]}
