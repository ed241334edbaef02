"""The references that a time of fpA_intB_gemm is compared with: the peers' timings, the dense GEMM
and the bandwidth floor. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from .peer_times import is_mma_sync_peer, peer_rows
from .results import Results
from .row import Point
from .schemes import SHORT_NAMES, Scheme
from .timed import GEMM, Timed, dense

FLOOR_GB_PER_S = 4400.0  # the bandwidth that the floor of docs/speed.md is stated for


@dataclass(frozen=True)
class References:
    """The references of a time, in us; None where nobody measured one.

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


def references_at(point: Point, scheme: Scheme, cublas: float | None = None) -> References:
    """``cublas``: of the same run; without it, the peers' list says."""
    here = scheme.peers().get(point, {})
    if cublas is None:
        listed = peer_rows("peers_h200").get(point, {})
        cublas = listed.get(f"cublas_{SHORT_NAMES[scheme.dtype]}")
    return References(
        peer=min(here.values(), default=None),
        mma_sync=min((us for p, us in here.items() if is_mma_sync_peer(p)), default=None),
        cublas=cublas,
        floor=scheme.traffic_bytes(point) / (FLOOR_GB_PER_S * 1e3),
    )


def references(results: Results, scheme: Scheme) -> dict[Point, References]:
    """Return the references for every point that ``results`` holds of the scheme."""
    measured = results.of(dense(scheme.dtype))
    points = results.of(Timed(GEMM, scheme))
    return {point: references_at(point, scheme, measured.get(point)) for point in points}
