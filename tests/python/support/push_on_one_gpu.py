"""Sums over ranks by our kernel where all ranks are streams of one GPU, with inboxes in its memory:
what a second GPU is not needed for.

    python -m support.push_on_one_gpu WORLD

The kernels of all ranks run at once and wait for each other, so nothing may keep one of them from
starting: messages are small, each stream has a queue of its own, and whatever else runs is loaded
before. CUDA_DEVICE_MAX_CONNECTIONS=32 and CUDA_MODULE_LOADING=EAGER are set by who starts this, and
with $MIXED_GEMM_RELIABILITY the number of sums is written there (tests/gpu/run_info.py).
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass

import run_info
import torch
from torch import Tensor

import mixed_gemm  # noqa: F401  # the ops

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
AS_INTEGERS = {2: torch.int16, 4: torch.int32}
MOST_BYTES = 2**20
FEW = (0, 4096, 2**18, 2**19)


@dataclass
class Rank:
    number: int
    stream: torch.cuda.Stream
    counter: Tensor
    wrong: Tensor


class Ranks:
    def __init__(self, world: int) -> None:
        self.sums = 0
        size = torch.ops.mixed_gemm._inbox_bytes(MOST_BYTES, world)
        self.inboxes = [torch.zeros(size, dtype=torch.uint8, device="cuda") for _ in range(world)]
        self.ranks = [
            Rank(i, torch.cuda.Stream(), torch.zeros(2, dtype=torch.int64, device="cuda"),  # type: ignore[no-untyped-call]
                 torch.zeros((), dtype=torch.int64, device="cuda"))
            for i in range(world)
        ]  # fmt: skip
        count = MOST_BYTES // 2 + 2**15
        self.pools = {
            dtype: [torch.randn(count, device="cuda").to(dtype) for _ in range(world)]
            for dtype in DTYPES
        }
        for rank in self.ranks:  # memory that each stream keeps, and kernels that are loaded
            with torch.cuda.stream(rank.stream):
                sizes = [2**26] + 32 * [2**18]
                held = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in sizes]
                del held
                for dtype in DTYPES:
                    self.compare(rank, self.pools[dtype][0][:8], [self.pools[dtype][0][:8]])
                rank.wrong.zero_()
        torch.cuda.synchronize()

    def terms(self, nbytes: int, dtype: torch.dtype, first: int) -> list[Tensor]:
        size = dtype.itemsize
        start = first * 16 // size
        return [pool[start : start + nbytes // size] for pool in self.pools[dtype]]

    def start(self, rank: Rank, terms: list[Tensor], few_bytes: int) -> Tensor:
        total: Tensor = torch.ops.mixed_gemm._sum_over_ranks(
            terms[rank.number], self.inboxes, rank.counter, rank.number, few_bytes
        )
        return total

    def compare(self, rank: Rank, total: Tensor, terms: list[Tensor]) -> None:
        want = terms[0].float()
        for term in terms[1:]:
            want = want + term.float()
        integers = AS_INTEGERS[total.element_size()]
        rank.wrong += (total.view(integers) != want.to(total.dtype).view(integers)).any()

    def sum(self, pick: random.Random, most_bytes: int, at_once: int) -> None:
        """So many sums on every stream, then the comparisons."""
        calls = []
        self.sums += at_once * len(self.ranks)
        for _ in range(at_once):
            nbytes = 16 * int(2 ** pick.uniform(0, (most_bytes // 16).bit_length() - 1))
            calls.append((self.terms(nbytes, pick.choice(DTYPES), pick.randrange(2048)),
                          pick.choice(FEW)))  # fmt: skip
        for rank in pick.sample(self.ranks, len(self.ranks)):
            with torch.cuda.stream(rank.stream):
                if pick.random() < 0.2:
                    torch.cuda._sleep(pick.randrange(100_000))  # type: ignore[no-untyped-call]
                totals = [self.start(rank, *call) for call in calls]
                for total, (terms, _) in zip(totals, calls, strict=True):
                    self.compare(rank, total, terms)

    def settle(self, what: str) -> None:
        torch.cuda.synchronize()
        wrong = [int(rank.wrong) for rank in self.ranks]
        assert not any(wrong), f"{what}: sums differ, by rank: {wrong}"
        print(f"{what}: ok", flush=True)

    def wrong(self) -> int:
        return sum(int(rank.wrong) for rank in self.ranks)


def main() -> None:
    world = int(sys.argv[1])
    ranks = Ranks(world)
    try:
        try_all(ranks, world)
    finally:
        row = {"count": ranks.sums, "failed": ranks.wrong()}
        name = f"sums over ranks, {world} of them streams of one GPU"
        run_info.write_part("cases", f"push-{world}", "cuda", [{"name": name, **row}])
    print("done", flush=True)


def try_all(ranks: Ranks, world: int) -> None:
    pick = random.Random(world)
    most = MOST_BYTES if world == 2 else 2**17
    for _ in range(20):  # one by one, so that a first fault is easy to place
        ranks.sum(pick, most, 1)
        torch.cuda.synchronize()
    ranks.settle("one by one")
    for _ in range(300):
        ranks.sum(pick, most, 1)
    ranks.settle("many in a row")
    for _ in range(30):
        ranks.sum(pick, 2**14, 20)
    ranks.settle("directly behind each other")
    for around in (2**31, 2**32):
        for rank in ranks.ranks:
            rank.counter[0] = around - 7
        torch.cuda.synchronize()
        for _ in range(24):
            ranks.sum(pick, most, 1)
        ranks.settle(f"around epoch {around}")


if __name__ == "__main__":
    main()
