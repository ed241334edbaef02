"""Which way a sum over ranks takes, by its size and dtype, and the memory that this costs."""

from __future__ import annotations

import pytest
import torch

from mixed_gemm.distributed.methods import GROUP_BYTES, PEER_BYTES, PUSH_BYTES, Bounds
from mixed_gemm.distributed.rowwise import ROWS_OF_A_PART
from tools.pages import parallel

MIB = 2**20
AUTO = Bounds(push=PUSH_BYTES, peer=PEER_BYTES, group=GROUP_BYTES)
WITHOUT_PUSH = Bounds(peer=PEER_BYTES, group=GROUP_BYTES)
BOUNDS = {
    "auto": AUTO,
    "auto without push": WITHOUT_PUSH,
    "push": Bounds(push=32 * MIB),
    "peer": Bounds(peer=PEER_BYTES),
    "group": Bounds(),
}


@pytest.mark.parametrize(
    ("of", "nbytes", "dtype", "how"),
    [
        ("auto", 16, torch.float16, "push"),
        ("auto", 8 * MIB, torch.float32, "push"),
        ("auto", 8 * MIB + 16, torch.bfloat16, "peer"),
        ("auto", 64 * MIB, torch.bfloat16, "peer"),
        ("auto", 64 * MIB + 16, torch.bfloat16, "group"),
        ("auto", MIB + 2, torch.bfloat16, "group"),
        ("auto", MIB // 2, torch.float64, "group"),
        ("auto", MIB, torch.float64, "peer"),
        ("auto without push", MIB // 2, torch.bfloat16, "group"),
        ("auto without push", MIB // 2 + 16, torch.bfloat16, "peer"),
        ("push", 32 * MIB, torch.bfloat16, "push"),
        ("push", 32 * MIB + 16, torch.bfloat16, "group"),
        ("push", 16, torch.int32, "group"),
        ("peer", 16, torch.bfloat16, "peer"),
        ("peer", 24, torch.bfloat16, "group"),
        ("group", 16, torch.bfloat16, "group"),
    ],
)
def test_the_way_is_that_of_the_size(of: str, nbytes: int, dtype: torch.dtype, how: str) -> None:
    assert BOUNDS[of].method_for(nbytes, dtype) == how


def test_parts_are_of_what_push_does_not_take_at_once() -> None:
    for bounds in (AUTO, WITHOUT_PUSH, BOUNDS["peer"]):
        taken = [bounds.takes_parts(n) for n in (8 * MIB, 8 * MIB + 16, 64 * MIB, 64 * MIB + 16)]
        assert taken == [False, True, True, False]
    for of in ("push", "group"):
        assert not BOUNDS[of].takes_parts(16 * MIB)


def test_an_inbox_of_auto_takes_the_memory_that_its_docstring_says() -> None:
    for ranks in (2, 8):
        found = torch.ops.mixed_gemm._inbox_bytes(PUSH_BYTES, ranks) / MIB
        assert round(found) == 18 * (ranks - 1)


def test_the_page_shows_what_auto_takes() -> None:
    for rows, kernel in parallel.OURS.items():
        nbytes = rows * 8192 * 2
        cut = rows >= 2 * ROWS_OF_A_PART and AUTO.takes_parts(nbytes)
        how = AUTO.method_for(nbytes, torch.bfloat16)
        assert kernel == f"{how}, parts of {ROWS_OF_A_PART if cut else 0}"
