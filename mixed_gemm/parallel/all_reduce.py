"""Sums over the ranks of a group, for messages of the size that layers make.

Where torch's symmetric memory is there (GPUs of one host that reach each other's memory), a rank
reads the terms of the others itself: one kernel and a barrier, which a CUDA graph may hold; or it
writes its own to them (``push``). Nowhere is multicast used. Else, and where messages are large, it
is the all-reduce of the process group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from . import push

# Measured on 2 H200s (docs/parallel.md): up to so many bytes torch's own kernel, which copies,
# waits and adds in one launch, is the fastest; up to so many a copy, a barrier and an addition by
# the whole GPU; beyond them nothing was tried but NCCL.
ONE_SHOT_BYTES = 256 * 1024
PEER_BYTES = 64 * 1024 * 1024
# Up to so many bytes "auto" takes "push": none, since it is not measured.
PUSH_BYTES = 0
METHODS = ("auto", "one_shot", "peer", "push", "group")


@dataclass(frozen=True)
class _Buffer:
    """Memory of this rank that the others read; ``handle`` has theirs."""

    tensor: Tensor
    handle: Any

    def like(self, term: Tensor, first: int = 0) -> Tensor:
        """A tensor like ``term`` in it, from byte ``first`` on."""
        place = self.tensor[first : first + term.nbytes]
        return place.view(term.dtype).view(term.shape)

    def of(self, rank: int, term: Tensor, first: int = 0) -> Tensor:
        """The same of another rank's memory."""
        found: Tensor = self.handle.get_buffer(
            rank, term.shape, term.dtype, first // term.element_size()
        )
        return found


class AllReduce:
    """The sum over a group, in the dtype of the terms; in the order of the ranks, so that all of
    them get the same bits, and the same in each run.

    Args:
        group: of ``torch.distributed``.
        device: of the terms.
        method: "one_shot" and "peer" read the other ranks' memory, "push" writes to it (a kernel of
            this library, up to 32 MiB), "group" is ``torch.distributed.all_reduce``; "auto" takes
            what is the fastest for the size, and "group" where there is no symmetric memory.
        most_bytes: of a message through symmetric memory, which are allocated; "push" allocates
            twice as many for each other rank.

    Attributes:
        why_not: why there is no symmetric memory, in words; empty where there is.

    Raises:
        ValueError: ``method`` is none of these.
        RuntimeError: "one_shot", "peer" or "push" is asked for where there is no symmetric memory.
    """

    def __init__(
        self, group: Any, device: torch.device, method: str = "auto",
        most_bytes: int = PEER_BYTES,
    ) -> None:  # fmt: skip
        if method not in METHODS:
            raise ValueError(f"AllReduce: method must be one of {METHODS}, got {method!r}")
        self.group, self.device, self.method = group, device, method
        self._most_bytes = most_bytes
        self.key = ""
        self._buffer: _Buffer | None = None
        self._push: push.Push | None = None
        self.why_not = "asked for the group's" if method == "group" else self._allocate()
        if self.why_not and method in ("one_shot", "peer", "push"):
            raise RuntimeError(f"AllReduce: method {method!r} cannot be had: {self.why_not}")

    def _allocate(self) -> str:
        """Why there is no symmetric memory, empty where there is; the same on all ranks."""
        ranks = dist.get_world_size(self.group)
        if self.device.type != "cuda":
            reason = f"symmetric memory is of CUDA devices, got {self.device}"
        elif ranks == 1:
            reason = "there is one rank"
        else:
            try:
                import torch.distributed._symmetric_memory as symmetric

                pushes = self.method == "auto" and PUSH_BYTES and not push.why_not(ranks)
                if self.method == "push" or pushes:
                    most = min(self._most_bytes, push.MOST_BYTES)
                    self._push = push.Push(self.group, self.device, most)
                if self.method != "push":
                    size = self._most_bytes
                    tensor = symmetric.empty(size, dtype=torch.uint8, device=self.device)
                    self._buffer = _Buffer(tensor, symmetric.rendezvous(tensor, self.group))
                return ""
            except (ImportError, RuntimeError, AttributeError) as error:
                reason = f"{type(error).__name__}: {error}"
        return reason

    def method_for(self, nbytes: int, dtype: torch.dtype = torch.bfloat16) -> str:
        """What runs for a message: "one_shot", "peer", "push" or "group".

        Args:
            nbytes: of the message. dtype: of its elements.
        """
        pushes = self._push is not None and self._push.takes(nbytes, dtype)
        if pushes and (self.method == "push" or nbytes <= PUSH_BYTES):
            return "push"
        if self._buffer is None or nbytes > self._most_bytes or nbytes % 16:
            return "group"
        if self.method != "auto":
            return self.method
        if nbytes <= ONE_SHOT_BYTES:
            return "one_shot"
        return "peer" if nbytes <= PEER_BYTES else "group"

    def prefetches(self, nbytes: int, dtype: torch.dtype) -> bool:
        """Whether the sum of a message brings what comes after it into L2.

        Args:
            nbytes: of the message. dtype: of its elements.
        """
        return self._push is not None and self.method_for(nbytes, dtype) == "push"

    def __call__(self, term: Tensor, prefetch: Tensor | None = None) -> Tensor:
        """The sum.

        Args:
            term: this rank's, contiguous, of any shape; the same shape on all ranks. It may be
                written into.
            prefetch: uint8 ``[rows, bytes]`` to bring into L2 meanwhile, where the sum
                :meth:`prefetches`.
        """
        how = self.method_for(term.nbytes, term.dtype)
        if how == "group":
            dist.all_reduce(term, group=self.group)
            return term
        if how == "push":
            assert self._push is not None
            return self._push(term, prefetch)
        assert self._buffer is not None
        if how == "one_shot":
            return self._one_shot(term, self._buffer)
        return self._from_peers(term, self._buffer)

    def _one_shot(self, term: Tensor, buffer: _Buffer) -> Tensor:
        mine = buffer.like(term)
        ops: Any = torch.ops.symm_mem
        name = self.group.group_name
        if hasattr(ops, "one_shot_all_reduce_copy"):
            found: Tensor = ops.one_shot_all_reduce_copy(mine, term, "sum", name)
            return found
        mine.copy_(term)
        total: Tensor = ops.one_shot_all_reduce(mine, "sum", name)
        return total

    def _from_peers(self, term: Tensor, buffer: _Buffer) -> Tensor:
        buffer.like(term).copy_(term)
        buffer.handle.barrier(channel=0)
        rank, ranks = dist.get_rank(self.group), dist.get_world_size(self.group)
        total = _sum([term if i == rank else buffer.of(i, term) for i in range(ranks)])
        buffer.handle.barrier(channel=0)  # before anybody writes the next one
        return total

    def takes_parts(self, nbytes: int) -> bool:
        """Whether :meth:`in_parts` hides the sum of a message.

        Args:
            nbytes: of the message.
        """
        return self._buffer is not None and ONE_SHOT_BYTES < nbytes <= self._most_bytes

    def in_parts(self, products: Sequence[Callable[[], Tensor]], out: Tensor) -> Tensor:
        """The sums of several products, each of which travels while the next one is computed: by
        copy engines, since the product keeps all multiprocessors busy.

        Args:
            products: each makes some rows of this rank's term, contiguous.
            out: ``[rows, N]`` for all of them, at most ``most_bytes``.
        """
        buffer, first, row = self._buffer, 0, 0
        assert buffer is not None
        rank, ranks = dist.get_rank(self.group), dist.get_world_size(self.group)
        main, side = torch.cuda.current_stream(), _side_stream(out.device.index)
        for product in products:
            term = product()
            buffer.like(term, first).copy_(term)
            side.wait_stream(main)
            with torch.cuda.stream(side):
                buffer.handle.barrier(channel=1)
                terms = [
                    term if i == rank else torch.empty_like(term).copy_(buffer.of(i, term, first))
                    for i in range(ranks)
                ]
                _sum(terms, out[row : row + term.shape[0]])
            term.record_stream(side)
            first, row = first + term.nbytes, row + term.shape[0]
        with torch.cuda.stream(side):
            buffer.handle.barrier(channel=1)
        main.wait_stream(side)
        return out


def _sum(terms: list[Tensor], out: Tensor | None = None) -> Tensor:
    """In the order of the ranks."""
    total = torch.add(terms[0], terms[1], out=out)
    for other in terms[2:]:
        total += other
    return total


_SIDE: dict[int, Any] = {}


def _side_stream(device: int) -> Any:
    if device not in _SIDE:
        _SIDE[device] = torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]
    return _SIDE[device]


# By the name of the group and the method; the op below finds them so.
_SHARED: dict[str, AllReduce] = {}


def shared(mesh: Any, method: str) -> AllReduce:
    """That of the group of a one-dimensional mesh: all layers share its buffer. Every rank has to
    ask for it at the same time."""
    group = mesh.get_group()
    key = f"{group.group_name} {method}"
    known = _SHARED.get(key)
    if known is None or known.group is not group:  # a later group may have the name of one before
        device = torch.device(mesh.device_type)
        if device.type == "cuda":
            device = torch.device("cuda", torch.cuda.current_device())
        _SHARED[key] = AllReduce(group, device, method)
        _SHARED[key].key = key
    return _SHARED[key]


@torch.library.custom_op("mixed_gemm_parallel::sum_over_ranks", mutates_args=())
def sum_over_ranks(term: Tensor, key: str, prefetch: Tensor | None = None) -> Tensor:
    """An ``AllReduce`` as torch.compile sees it: an op of its own.

    Args:
        term: this rank's, of any shape. key: of :func:`shared`. prefetch: for the ``AllReduce``.
    """
    return _SHARED[key](term.clone(memory_format=torch.contiguous_format), prefetch)


@sum_over_ranks.register_fake
def _(term: Tensor, key: str, prefetch: Tensor | None = None) -> Tensor:
    return term.new_empty(term.shape)
