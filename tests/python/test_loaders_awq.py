"""AutoAWQ's files, written by its own packers (tests/data/make_awq.py)."""

from __future__ import annotations

import pytest
import tiny_llama
import torch

from mixed_gemm.loaders import open_checkpoint

CASES = {"awq_gemm": 32, "awq_gemm_channel": -1, "awq_gemv": 32, "awq_gemv_fast": 64}


@pytest.mark.parametrize("folder", ["awq_gemm", "awq_gemm_channel"])
def test_open_finds_the_truth_that_was_packed(repository, folder):
    checkpoint = open_checkpoint(repository / "tests" / "data" / folder)
    assert set(checkpoint.layers) == set(tiny_llama.LINEARS)
    for name, (n, k) in tiny_llama.LINEARS.items():
        truth = tiny_llama.grid(name, n, k, 4, CASES[folder], symmetric=False)
        weight = checkpoint.layer(name)
        assert torch.equal(weight.q.long() + 8, truth.codes)
        assert torch.equal(weight.zeros.long() + 8, truth.zeros)
        assert torch.equal(weight.scales, truth.scales)
        assert torch.equal(weight.dequantize(), truth.weight())
        assert torch.equal(weight.to_linear(torch.float32).dequantize(), truth.weight())
