"""The table of docs/schemes.md of what is accepted, against why_not, on the CPU and on GPUs that
are not here. (The README's table of what runs where is checked by test_pages.py.)"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

import mixed_gemm
from mixed_gemm.ops.problem import ACTIVATIONS

DEVICES = {
    "cpu": "cpu",
    "8.0": "cuda:sm=80,sms=108,smem=166912",
    "8.6": "cuda:sm=86,sms=72,smem=101376",
    "8.9": "cuda:sm=89,sms=142,smem=101376",
    "9.0": "cuda:sm=90,sms=132,smem=232448",
}
ROWS = {
    line.split("|")[1].strip(): line
    for line in (Path(__file__).parents[2] / "docs" / "schemes.md").read_text().splitlines()
    if line.startswith("| ") and line.count("|") == 4
}


def test_the_page_names_every_gpu_activation_and_dtype() -> None:
    header = next(line for line in ROWS.values() if "CUDA (" in line)
    for capability in list(DEVICES)[1:]:
        assert capability in header
    for activation in ACTIVATIONS:
        assert activation in ROWS["fused"]
    for dtype in ("float32", "float16", "bfloat16"):
        assert dtype in ROWS["activations"]


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
def test_what_the_page_lists_is_accepted(device: str) -> None:
    dtypes = (torch.float32, torch.float16, torch.bfloat16)
    groups = (-1, 16, 32, 48, 64, 96, 128, 256, 4096)
    shapes = ((1, 1, 4096), (0, 64, 4096), (7, 129, 4097), (5000, 11008, 4096))
    for dtype, bits, group, zeros, (m, n, k) in itertools.product(
        dtypes, (4, 8), groups, ("none", "sub", "add"), shapes
    ):
        refusal = mixed_gemm.why_not(
            m, n, k, dtype=dtype, bits=bits, group_size=group, zero_mode=zeros, device=device
        )
        assert refusal is None, refusal


@pytest.mark.parametrize("bits", (1, 2, 3, 5, 16))
def test_what_the_page_does_not_list_is_refused(bits: int) -> None:
    for device in DEVICES.values():
        assert mixed_gemm.why_not(1, 64, 64, bits=bits, group_size=-1, device=device) is not None


def test_older_gpus_are_refused() -> None:
    refusal = mixed_gemm.why_not(1, 64, 64, group_size=-1, device="cuda:sm=75,sms=40,smem=65536")
    assert refusal is not None
    assert "8.0" in str(refusal)
