"""What benchmarks time with: the package's timer, and what a GPU reaches now."""

from __future__ import annotations

import torch

from mixed_gemm.selection.timing import (
    LEAST_REPLAY_US,
    Graph,
    Timer,
    Timing,
    rotations,
    time_interleaved,
)

__all__ = [
    "LEAST_REPLAY_US",
    "Graph",
    "Timer",
    "Timing",
    "copies_for",
    "measured_ceilings",
    "rotations",
    "time_interleaved",
]

# Bytes, more than the L2 of any GPU: every replayed call finds its weight in device memory.
ROTATE_BYTES = 300e6


def copies_for(weight_bytes: int, most: int = 64) -> int:
    """Copies of a weight that together exceed ROTATE_BYTES, at least 2."""
    return max(2, min(most, int(ROTATE_BYTES // max(weight_bytes, 1)) + 1))


def measured_ceilings() -> dict[str, float]:
    """What this GPU reaches now: device-to-device copy (read + write), a pure read, dense fp16."""
    source = torch.randn(1 << 30, device="cuda", dtype=torch.float16)
    target = torch.empty_like(source)
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.float16)
    graphs = {
        "copy": Graph([lambda: target.copy_(source)] * 4),
        "read": Graph([lambda: torch.sum(source, dtype=torch.float32)] * 4),
        "dense": Graph([lambda: a @ a] * 8),
    }
    us = {name: t.us for name, t in time_interleaved(graphs, 7).items()}
    bytes_ = source.numel() * 2
    return {
        "copy_gb_per_s": round(2e-3 * bytes_ / us["copy"], 1),
        "read_gb_per_s": round(1e-3 * bytes_ / us["read"], 1),
        "dense_fp16_tflops": round(2e-6 * 8192**3 / us["dense"], 1),
    }
