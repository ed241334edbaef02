"""What of the sum by our kernel can be had without a GPU: how large an inbox is, and refusals."""

from __future__ import annotations

import pytest
import torch

from mixed_gemm import _library
from mixed_gemm.distributed import push

UNITS = 2**20  # bytes of an inbox for messages of few bytes, of one slot and rank


@pytest.mark.parametrize(("most_bytes", "chunks"), [(1, 1), (16384, 1), (16385, 2), (2**25, 2048)])
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_an_inbox_has_two_slots_for_each_other_rank(
    most_bytes: int, chunks: int, ranks: int
) -> None:
    found = torch.ops.mixed_gemm._inbox_bytes(most_bytes, ranks)
    assert found == 2 * (ranks - 1) * (UNITS + chunks * (16384 + 8))


@pytest.mark.parametrize(
    ("most_bytes", "ranks", "text"),
    [
        (2**20, 1, "ranks must be from 2 to 8, got 1"),
        (2**20, 9, "ranks must be from 2 to 8, got 9"),
        (0, 2, "most_bytes must be from 1 to 1099511627776, got 0"),
    ],
)
def test_other_inboxes_are_refused(most_bytes: int, ranks: int, text: str) -> None:
    with pytest.raises(RuntimeError, match=f"mixed_gemm::_inbox_bytes: {text}"):
        torch.ops.mixed_gemm._inbox_bytes(most_bytes, ranks)


def test_why_there_is_no_kernel() -> None:
    assert push.MOST_RANKS == 8
    if _library.has_cuda:
        assert push.why_not(8) == ""
        assert push.why_not(9) == "there are 9 ranks, more than 8"
    else:
        assert push.why_not(2) == "mixed_gemm was built without CUDA"


def test_a_fake_tensor_has_the_shape_of_the_term() -> None:
    with torch.device("meta"):
        term = torch.empty(3, 8, dtype=torch.bfloat16)
        inboxes = [torch.empty(64, dtype=torch.uint8) for _ in range(2)]
        counter = torch.zeros(2, dtype=torch.int64)
    total = torch.ops.mixed_gemm._sum_over_ranks(term, inboxes, counter, 0, 0)
    assert total.shape == term.shape and total.dtype == term.dtype
