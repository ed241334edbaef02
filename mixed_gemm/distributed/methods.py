"""Which way a sum over ranks takes, by the size of the message."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from . import push

METHODS = ("auto", "push", "peer", "group")

# The limits of "auto", measured on 2 H100s (docs/parallel.md). Up to 8 MiB "push" is the fastest,
# by less the longer a message is: 40 us beside 40 at 8 MiB. Twice as many would cost twice the
# memory for 3 us of 73. Up to 64 MiB "peer", beyond which nothing was tried but NCCL.
PUSH_BYTES = 8 * 1024 * 1024
PEER_BYTES = 64 * 1024 * 1024
# Where there is no "push", up to so many bytes NCCL takes no longer than "peer".
GROUP_BYTES = 512 * 1024


@dataclass(frozen=True)
class Bounds:
    """Bytes of the longest message of each way, 0 where it cannot be had.

    Attributes:
        push, peer: what is longer than both, or does not fit them, is summed by the group.
        group: up to so many bytes the group comes before "peer".
    """

    push: int = 0
    peer: int = 0
    group: int = 0

    def method_for(self, nbytes: int, dtype: torch.dtype) -> str:
        """One of ``METHODS`` but "auto"; the same on all ranks."""
        if nbytes <= self.push and push.fits(nbytes, dtype):
            return "push"
        return "peer" if self.group < nbytes <= self.peer and nbytes % 16 == 0 else "group"

    def takes_parts(self, nbytes: int) -> bool:
        """Whether a sum may travel in parts, by the memory of "peer": one that "push" takes at once
        is too short to be cut."""
        return PUSH_BYTES < nbytes <= self.peer
