"""The sum over the GPUs of one host (csrc/ranks), which ``mixed_gemm.parallel`` calls."""

from __future__ import annotations

from .autograd import Derivatives
from .op import Op
from .reasons import DETACH, IN_PARALLEL

OPS = (
    Op(
        "_sum_over_ranks",
        "the sum of what all ranks give, through inboxes that they write for each other",
        derivatives=Derivatives(f"its gradient is that of mixed_gemm.parallel. {DETACH}"),
        autocast=IN_PARALLEL,
        vmap=IN_PARALLEL,
        flops=IN_PARALLEL,
        sharding=IN_PARALLEL,
        opcheck=IN_PARALLEL,
    ),
)
