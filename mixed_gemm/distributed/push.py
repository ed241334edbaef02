"""Sums over ranks by our kernel (csrc/ranks): every rank writes its term into the memory of the
others and waits for theirs in its own, in one launch without barriers, which a CUDA graph may hold.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .. import _library

# Up to so many bytes a message says with every 4 bytes that they have come, and travels as twice as
# many; longer ones say it once for 16 KiB. At most 512 KiB. On 2 H100s, 256 KiB take 4.2 us the
# first way and 512 KiB 6.4 us the second; no size was timed both ways.
FEW_BYTES = 256 * 1024
MOST_BYTES = 32 * 1024 * 1024  # the longest message
MOST_RANKS = 8
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def why_not(ranks: int) -> str:
    """Why the kernel cannot be had, in words; empty where it can."""
    if not _library.available:
        return str(_library.error)
    name = "mixed_gemm::_sum_over_ranks"
    if not torch._C._dispatch_has_kernel_for_dispatch_key(name, "CUDA"):
        return "mixed_gemm was built without CUDA"
    return f"there are {ranks} ranks, more than {MOST_RANKS}" if ranks > MOST_RANKS else ""


def fits(nbytes: int, dtype: torch.dtype) -> bool:
    """Whether the kernel takes such messages, if they are not too long."""
    return dtype in DTYPES and nbytes % 16 == 0


class Push:
    """The sum over the ranks of a group, in float32 in the order of the ranks, rounded once: all
    ranks get the same bits. Every rank makes the same calls in the same order, on one stream.

    Args:
        group: of ``torch.distributed``. device: of the terms, a GPU.
        most_bytes: of a message. A rank allocates room for two from each other rank, and 2 MiB for
            short ones: with 8 MiB it is 18 MiB in a group of two, 126 MiB in one of eight.

    Attributes:
        few_bytes: of the longest message whose words all carry a mark; the same on all ranks.
        counter: int64 (sums that are done, blocks of the present one that are).

    Raises:
        RuntimeError: there is no symmetric memory, or no kernel.
    """

    def __init__(self, group: Any, device: torch.device, most_bytes: int = MOST_BYTES) -> None:
        import torch.distributed._symmetric_memory as symmetric

        self.rank, ranks = dist.get_rank(group), dist.get_world_size(group)
        if reason := why_not(ranks):
            raise RuntimeError(reason)
        self.few_bytes = FEW_BYTES
        self.counter = torch.zeros(2, dtype=torch.int64, device=device)
        size = torch.ops.mixed_gemm._inbox_bytes(most_bytes, ranks)
        inbox = symmetric.empty(size, dtype=torch.uint8, device=device).zero_()
        self._handle: Any = symmetric.rendezvous(inbox, group)
        self._inboxes = [
            inbox if i == self.rank else self._handle.get_buffer(i, (size,), torch.uint8)
            for i in range(ranks)
        ]
        self._handle.barrier(channel=0)  # nobody writes what another one has yet to clear
        torch.cuda.synchronize(device)  # whatever stream the first sum is on

    def __call__(self, term: Tensor) -> Tensor:
        """The sum, a new tensor.

        Args:
            term: this rank's, contiguous, of at most ``most_bytes``; one that :func:`fits`.
        """
        if term.data_ptr() % 16:
            term = term.clone()
        total: Tensor = torch.ops.mixed_gemm._sum_over_ranks(
            term, self._inboxes, self.counter, self.rank, self.few_bytes
        )
        return total
