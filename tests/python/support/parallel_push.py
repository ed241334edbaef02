"""Sums over ranks by our kernel, in one of several processes with a GPU each.

    python -m support.parallel_push RANK STORE

prints "NAME: ok" or "NAME: " and what is wrong for every case, then "done". Every rank draws the
terms of all of them, so that each knows the sum to the bit: in float32, in the order of the ranks,
rounded once. What is wrong is counted on the GPUs and asked for once, at the end of a case, so that
no rank leaves another one waiting.
"""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from support import ranks
from torch import Tensor, nn

import mixed_gemm
from mixed_gemm.distributed.push import DTYPES, Push
from mixed_gemm.parallel import AllReduce, RowwiseParallel

FEW = (0, 4096, 256 * 1024, 512 * 1024)  # bytes of the longest message that is sent in units
EDGES = (16, 32, 4080, 4096, 4112, 16368, 16384, 16400, 2**19, 2**19 + 16, 2**21, 2**21 + 16,
         2**25 - 16, 2**25)  # fmt: skip
AS_INTEGERS = {2: torch.int16, 4: torch.int32}


@dataclass
class Checked:
    """Sums that are held against what they must be."""

    push: Push
    rank: int
    world: int
    device: torch.device
    wrong: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.wrong = torch.zeros((), dtype=torch.int64, device=self.device)
        self.pools = {dtype: [self.drawn(i, dtype) for i in range(self.world)] for dtype in DTYPES}

    def drawn(self, rank: int, dtype: torch.dtype) -> Tensor:
        generator = torch.Generator(self.device).manual_seed(rank)
        count = 2**25 // dtype.itemsize + 2**16
        return torch.randn(count, generator=generator, device=self.device).to(dtype)

    def terms(self, nbytes: int, dtype: torch.dtype, first: int) -> list[Tensor]:
        """The terms of all ranks, from piece ``first`` of 16 bytes on."""
        size = dtype.itemsize
        start = first * 16 // size
        return [pool[start : start + nbytes // size] for pool in self.pools[dtype]]

    def compare(self, total: Tensor, terms: list[Tensor]) -> None:
        want = terms[0].float()
        for term in terms[1:]:
            want = want + term.float()
        integers = AS_INTEGERS[total.element_size()]
        self.wrong += (total.view(integers) != want.to(total.dtype).view(integers)).sum()

    def sum(self, nbytes: int, dtype: torch.dtype, first: int) -> None:
        terms = self.terms(nbytes, dtype, first)
        poison = torch.full_like(terms[0], float("nan"))
        del poison  # whose memory the sum is most likely to get
        self.compare(self.push(terms[self.rank]), terms)

    def settle(self) -> None:
        """Raise on all ranks what any of them has counted."""
        dist.all_reduce(self.wrong)
        wrong = int(self.wrong)
        self.wrong.zero_()
        assert wrong == 0, f"{wrong} elements differ"


def drawn_sizes(pick: random.Random, most_bytes: int) -> Iterator[tuple[int, torch.dtype, int]]:
    """(bytes, dtype, first piece), the same on all ranks."""
    while True:
        nbytes = 16 * max(1, int(2 ** pick.uniform(0, (most_bytes // 16).bit_length() - 1)))
        yield nbytes, pick.choice(DTYPES), pick.randrange(4096)


def every_size_by_both_protocols(checked: Checked) -> None:
    pick = random.Random(1)
    sizes = drawn_sizes(pick, 2**25)
    calls = [next(sizes) for _ in range(150)]
    calls += [(nbytes, dtype, 0) for nbytes in EDGES for dtype in DTYPES]
    for nbytes, dtype, first in calls:
        checked.push.few_bytes = pick.choice(FEW)
        checked.sum(nbytes, dtype, first)
    checked.settle()


def a_thousand_in_a_row(checked: Checked) -> None:
    """With nothing that waits for the GPUs, and ranks that fall behind by turns."""
    pick, own = random.Random(2), random.Random(100 + checked.rank)
    small, large = drawn_sizes(pick, 2**17), drawn_sizes(pick, 2**23)
    for _ in range(1000):
        checked.push.few_bytes = pick.choice(FEW)
        if own.random() < 0.1:
            torch.cuda._sleep(own.randrange(200_000))  # type: ignore[no-untyped-call]
        checked.sum(*next(small if pick.random() < 0.9 else large))
    checked.settle()


def directly_behind_each_other(checked: Checked) -> None:
    """Sums that nothing comes between, so that each starts while the one before ends."""
    pick = random.Random(3)
    sizes = drawn_sizes(pick, 2**18)
    for _ in range(20):
        checked.push.few_bytes = pick.choice(FEW)
        calls = [next(sizes) for _ in range(30)]
        terms = [checked.terms(*call) for call in calls]
        totals = [checked.push(of_ranks[checked.rank]) for of_ranks in terms]
        for total, of_ranks in zip(totals, terms, strict=True):
            checked.compare(total, of_ranks)
    checked.settle()


def graphs_that_are_replayed(checked: Checked) -> None:
    """An odd number of sums, so that the slots of a replay are not those of the one before; terms
    change from replay to replay."""
    pick = random.Random(4)
    sizes = drawn_sizes(pick, 2**20)
    calls = [(*next(sizes), pick.choice(FEW)) for _ in range(11)]
    terms = [[x.clone() for x in checked.terms(*call[:3])] for call in calls]
    side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def all_of_them() -> None:
        totals = []
        for call, of_ranks in zip(calls, terms, strict=True):
            checked.push.few_bytes = call[3]
            totals.append(checked.push(of_ranks[checked.rank]))
        for total, of_ranks in zip(totals, terms, strict=True):
            checked.compare(total, of_ranks)
            for term in of_ranks:
                term.mul_(-1).add_(0.25)

    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        all_of_them()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
        all_of_them()
    for i in range(300):
        graph.replay()
        if i % 10 == 0:  # and one between replays
            checked.sum(4096, torch.bfloat16, i)
    checked.settle()


def epochs_whose_half_comes_again(checked: Checked) -> None:
    for around in (2**31, 2**32, 2**32 + 2**31):
        torch.cuda.synchronize()
        dist.barrier()
        checked.push.counter[0] = around - 7
        torch.cuda.synchronize()
        dist.barrier()
        sizes = drawn_sizes(random.Random(around), 2**19)
        for i in range(24):
            checked.push.few_bytes = FEW[-1] if i % 3 else 0
            checked.sum(*next(sizes))
        assert int(checked.push.counter[0]) == around - 7 + 24
    checked.settle()


def nothing_is_no_sum(checked: Checked) -> None:
    before = int(checked.push.counter[0])
    total = checked.push(torch.empty(0, 8, dtype=torch.bfloat16, device=checked.device))
    assert total.shape == (0, 8) and int(checked.push.counter[0]) == before


def what_does_not_fit_is_refused(checked: Checked) -> None:
    push, term = checked.push, torch.ones(64, dtype=torch.bfloat16, device=checked.device)
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("term must be float16, bfloat16 or float32, got float64", {"term": term.double()}),
        ("term must be contiguous", {"term": term.view(8, 8).t()}),
        ("term must have a multiple of 16 bytes, got 30 bytes", {"term": term[:15]}),
        ("term must begin at a multiple of 16 bytes", {"term": term[1:9]}),
        ("few_bytes must be from 0 to 524288, got 524289", {"few_bytes": 2**19 + 1}),
        ("inboxes must be of 2 to 8 ranks, got 1", {"inboxes": push._inboxes[:1]}),
        ("rank must be from 0 to", {"rank": checked.world}),
        ("term must have at most 0 bytes", {"inboxes": [x[:4096] for x in push._inboxes]}),
        ("counter must be int64", {"counter": push.counter.int()}),
    ]
    given = {"term": term, "inboxes": push._inboxes, "counter": push.counter, "rank": push.rank,
             "few_bytes": 0}  # fmt: skip
    for text, change in wrong:
        try:
            torch.ops.mixed_gemm._sum_over_ranks(**{**given, **change})
        except RuntimeError as error:
            assert f"mixed_gemm::_sum_over_ranks: {text}" in str(error), error
        else:
            raise AssertionError(f"not refused: {text}")


def all_reduce_falls_back(checked: Checked, mesh: Any) -> None:
    """Tensors that "push" does not take, and the method that "auto" gives each to."""
    of_method = {method: AllReduce(mesh.get_group(), checked.device, method)
                 for method in ("push", "auto")}  # fmt: skip
    assert not any(reduce.why_not for reduce in of_method.values())
    cases = [
        ("push", (2**24,), torch.float16, "push"),
        ("push", (2**23 + 4,), torch.float32, "group"),
        ("push", (3,), torch.float16, "group"),
        ("push", (8,), torch.float64, "group"),
        ("auto", (8,), torch.bfloat16, "push"),
        ("auto", (2**22,), torch.bfloat16, "push"),
        ("auto", (2**22 + 8,), torch.bfloat16, "peer"),
        ("auto", (2**25,), torch.bfloat16, "peer"),
        ("auto", (2**25 + 8,), torch.bfloat16, "group"),
        ("auto", (3,), torch.float16, "group"),
        ("auto", (2**16,), torch.float64, "group"),
        ("auto", (2**17,), torch.float64, "peer"),
    ]
    for method, shape, dtype, how in cases:
        reduce = of_method[method]
        term = torch.full(shape, checked.rank + 1.0, dtype=dtype, device=checked.device)
        assert reduce.method_for(term.nbytes, dtype) == how, (method, shape, dtype)
        checked.wrong += (reduce(term) != checked.world * (checked.world + 1) / 2).sum()
    shifted = torch.ones(9, dtype=torch.bfloat16, device=checked.device)[1:]
    for reduce in of_method.values():
        checked.wrong += (reduce(shifted) != checked.world).sum()
    checked.settle()


def layers_give_the_sum_of_peers(checked: Checked, mesh: Any) -> None:
    """To the bit, as two terms have it: eager, compiled and in a graph."""
    from torch.distributed.tensor.parallel import parallelize_module

    def made(scheme: str, method: str) -> nn.Module:
        torch.manual_seed(5)
        linear = nn.Linear(512, 768, device=checked.device, dtype=torch.bfloat16)
        if scheme == "w4a16":
            linear = mixed_gemm.Linear.from_float(linear, bits=4, group_size=64)
        linear.requires_grad_(False)
        return parallelize_module(linear, mesh, RowwiseParallel(all_reduce=method))

    for scheme in ("dense", "w4a16"):
        peer = made(scheme, "peer")
        for method, rows in itertools.product(("push", "auto"), (1, 5, 300)):
            layer = made(scheme, method)
            torch.manual_seed(rows)
            x = torch.randn(rows, 512, device=checked.device, dtype=torch.bfloat16)
            x = x.chunk(checked.world, -1)[checked.rank].contiguous()
            want = peer(x)
            torch._dynamo.reset()
            compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
            for run in (layer, compiled):
                checked.wrong += (run(x) != want).sum()
            graph = torch.cuda.CUDAGraph()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                out = layer(x)
            for _ in range(5):
                graph.replay()
            checked.wrong += (out != want).sum()
    checked.settle()


def main() -> None:
    rank, store = int(sys.argv[1]), sys.argv[2]
    mesh = ranks.join(rank, store)
    device = torch.device("cuda", rank)
    checked = Checked(Push(mesh.get_group(), device), rank, mesh.size(), device)
    cases = (
        every_size_by_both_protocols, a_thousand_in_a_row, directly_behind_each_other,
        graphs_that_are_replayed, nothing_is_no_sum, what_does_not_fit_is_refused,
        epochs_whose_half_comes_again,
    )  # fmt: skip
    with_mesh = (all_reduce_falls_back, layers_give_the_sum_of_peers)
    with torch.no_grad():
        ranks.try_all(
            {case.__name__: partial(case, checked) for case in cases}
            | {case.__name__: partial(case, checked, mesh) for case in with_mesh}
        )


if __name__ == "__main__":
    main()
