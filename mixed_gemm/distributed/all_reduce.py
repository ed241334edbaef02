"""Sums over the ranks of a group, for messages of the size that layers make.

Where torch's symmetric memory is there (GPUs of one host that reach each other's memory), a rank
writes its term into the memory of the others, by one kernel (``push``), or reads theirs between two
barriers: a CUDA graph may hold either. Nowhere is multicast used. Else, and where messages are very
large, it is the all-reduce of the process group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from . import push
from .methods import GROUP_BYTES, METHODS, PEER_BYTES, PUSH_BYTES, Bounds


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
    """The sum over a group, in the dtype of the terms; in the order of the ranks, but for "group",
    so that all of them get the same bits, and the same in each run.

    Args:
        group: of ``torch.distributed``.
        device: of the terms.
        method: "push" writes to the other ranks' memory, by a kernel of this library (at most 8
            ranks; up to 32 MiB of float16, bfloat16 or float32, added in float32 and rounded once);
            "peer" reads it; "group" is ``torch.distributed.all_reduce``, which sums what these two
            do not take. "auto": "push" up to 8 MiB, beyond them "peer"; where there is no "push",
            "group" up to 512 KiB; where there is no symmetric memory, "group".
        most_bytes: of a message through symmetric memory. "peer" allocates as many on each rank,
            "push" twice as many and 2 MiB for each other rank; "auto" does both, "push" for at most
            8 MiB: 64 + 18 MiB in a group of two, 64 + 126 MiB in one of eight.

    Attributes:
        why_not: why there is no symmetric memory, in words; empty where there is.

    Raises:
        ValueError: ``method`` is none of these.
        RuntimeError: "push" or "peer" is asked for and cannot be had.
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
        self._bounds = Bounds()
        self._buffer: _Buffer | None = None
        self._push: push.Push | None = None
        self.why_not = "asked for the group's" if method == "group" else self._allocate()
        if self.why_not and method in ("push", "peer"):
            raise RuntimeError(f"AllReduce: method {method!r} cannot be had: {self.why_not}")

    def _allocate(self) -> str:
        """Why there is no symmetric memory, empty where there is; the same on all ranks."""
        ranks = dist.get_world_size(self.group)
        if self.device.type != "cuda":
            return f"symmetric memory is of CUDA devices, got {self.device}"
        if ranks == 1:
            return "there is one rank"
        try:
            import torch.distributed._symmetric_memory as symmetric

            to_push = to_peer = 0
            if self.method == "push" or (self.method == "auto" and not push.why_not(ranks)):
                longest = PUSH_BYTES if self.method == "auto" else push.MOST_BYTES
                to_push = min(self._most_bytes, longest)
                self._push = push.Push(self.group, self.device, to_push)
            if self.method != "push":
                to_peer = self._most_bytes
                tensor = symmetric.empty(to_peer, dtype=torch.uint8, device=self.device)
                self._buffer = _Buffer(tensor, symmetric.rendezvous(tensor, self.group))
            to_group = GROUP_BYTES if self.method == "auto" else 0
            self._bounds = Bounds(to_push, to_peer, to_group)
            return ""
        except (ImportError, RuntimeError, AttributeError) as error:
            return f"{type(error).__name__}: {error}"

    def method_for(self, nbytes: int, dtype: torch.dtype = torch.bfloat16) -> str:
        """The way that a message goes: "push", "peer" or "group".

        Args:
            nbytes: of the message. dtype: of its elements.
        """
        return self._bounds.method_for(nbytes, dtype)

    def __call__(self, term: Tensor) -> Tensor:
        """The sum.

        Args:
            term: this rank's, contiguous, of any shape; the same shape on all ranks. It may be
                written into.
        """
        how = self.method_for(term.nbytes, term.dtype)
        if how == "group":
            dist.all_reduce(term, group=self.group)
            return term
        if how == "push":
            assert self._push is not None
            return self._push(term)
        assert self._buffer is not None
        return self._from_peers(term, self._buffer)

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
        return self._bounds.takes_parts(nbytes)

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
    """The sum over the group of a one-dimensional mesh: all layers share its buffer. Every rank has
    to ask for it at the same time."""
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
def sum_over_ranks(term: Tensor, key: str) -> Tensor:
    """An ``AllReduce`` as torch.compile sees it: an op of its own.

    Args:
        term: this rank's, of any shape. key: of :func:`shared`.
    """
    reduce = _SHARED[key]
    in_place = reduce.method_for(term.nbytes, term.dtype) == "group"
    return reduce(term.clone() if in_place and term.is_contiguous() else term.contiguous())


@sum_over_ranks.register_fake
def _(term: Tensor, key: str) -> Tensor:
    return term.new_empty(term.shape)
