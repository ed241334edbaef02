"""Experts of a mixture on CUDA: exact results for routings of all kinds (problems/experts.py)."""

from __future__ import annotations

import pytest
import torch
from problems import experts

pytest.importorskip("transformers", minversion="5.24", reason="optional: hf extra")

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("count", "k"), [(1, 1), (4, 2), (16, 4), (64, 8)])
@pytest.mark.parametrize("tokens", [0, 1, 7, 200])
@pytest.mark.parametrize("routing", experts.ROUTINGS)
def test_every_row_goes_to_its_expert(
    routing: str, tokens: int, count: int, k: int, dtype: torch.dtype
) -> None:
    experts.check(routing, tokens, count, k, dtype, "cuda")
