"""Which tiles block_quant_gemm may run on a GPU that is not here."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

H200 = "cuda:sm=90,sms=132,smem=232448"
A100 = "cuda:sm=80,sms=108,smem=166912"
A10 = "cuda:sm=86,sms=72,smem=101376"


def plan(m: int, n: int, k: int, block_size: int, device: str = H200) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(
        torch.ops.mixed_gemm._plan_block_quant_gemm(m, n, k, block_size, device)
    )
    return answer


def configs(*problem: Any) -> list[str]:
    answer = plan(*problem)
    assert answer["ok"], answer
    names = [c["config"] for c in answer["candidates"]]
    assert answer["selected"] == names[0]
    return names


@pytest.mark.parametrize("block_size", (-1, 16, 32, 48, 64, 128, 256, 4096))
@pytest.mark.parametrize("device", (H200, A100, A10))
def test_every_gpu_has_small_and_large_tiles(device: str, block_size: int) -> None:
    names = configs(300, 4096, 4096, block_size, device)
    tiles = {name.split("_")[1] for name in names}
    assert {"m16n64s6", "m64n64s4"} <= tiles
    assert any("cluster" in name for name in names) == (device == H200 and 0 < block_size <= 2048)
    assert not any("parallel" in name for name in names), "that is a third launch"


def test_small_m_takes_small_tiles_and_large_m_large_ones() -> None:
    assert plan(1, 4096, 4096, 128)["selected"].startswith("block_m16n64")
    assert plan(4096, 8192, 8192, 128)["selected"].startswith("block_m128n128")


@pytest.mark.parametrize(
    ("k", "block_size", "parts"),
    [(1024, 128, 8), (1000, 128, 8), (1024, 32, 8), (1024, 96, 3), (4096, 1024, 4), (4096, -1, 1)],
)
def test_k_is_shared_out_by_whole_blocks(k: int, block_size: int, parts: int) -> None:
    slices = [int(n.split("cluster")[1]) for n in configs(16, 256, k, block_size) if "cluster" in n]
    assert max(slices, default=1) == max(s for s in (1, 2, 4, 8) if s <= parts)


def test_refusals_name_the_count() -> None:
    answer = plan(1 << 30, 64, 4096, 32)
    assert not answer["ok"]
    assert "M * blocks of K must be at most 1073741824 on CUDA, got 137438953472" in str(answer)
    assert "block_size must be -1" in str(plan(1, 64, 4096, 40))


def test_empty_k_has_a_plan() -> None:
    assert configs(4, 8, 0, -1)
