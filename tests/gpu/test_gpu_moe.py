"""The ops around the experts of a mixture on CUDA: any routing in a graph, ids and positions that a
GPU cannot refuse, more experts than a block has counters, more choices than it has threads."""

from __future__ import annotations

import pytest
import torch
from problems.moe_permute import ROUTINGS, PermuteCase, make
from torch import Tensor

import mixed_gemm
from mixed_gemm.reference import moe as reference

pytestmark = pytest.mark.gpu

# At 512 experts or fewer a full block counts by 32 warps; at 3068 or fewer by 8, in one part.
EXPERTS = (1, 8, 128, 383, 384, 512, 767, 1024, 3068, 3069, 10_000)


def check(case: PermuteCase) -> None:
    problem = make(case, "cuda", drawn_on="cuda")
    assert float(problem.verdict(problem.run())) == 0, case


@pytest.mark.parametrize("experts", EXPERTS)
@pytest.mark.parametrize("m", (1, 32, 129, 4096))
def test_any_number_of_experts_is_sorted(m, experts):
    for routing in ROUTINGS:
        check(PermuteCase(m, 72, torch.bfloat16, 8, experts, routing=routing))


@pytest.mark.parametrize("m", (8191, 8192, 70_000, 300_001))
def test_any_number_of_choices_is_sorted(m):
    for experts in (128, 1024):
        check(PermuteCase(m, 8, torch.float16, 8, experts, torch.int32))


@pytest.mark.parametrize("dtype", (torch.int32, torch.int64), ids=str)
def test_ids_that_are_no_expert_have_no_effect(dtype):
    limits = torch.iinfo(dtype)
    ids = torch.randint(0, 60, (500, 6), dtype=dtype)
    odd = torch.tensor([limits.min, -2, -1, 60, 61, limits.max], dtype=dtype)
    ids = torch.where(torch.rand(ids.shape) < 0.3, odd[torch.randint(0, 6, ids.shape)], ids)
    x = torch.randn(500, 48, dtype=torch.float16)
    found = mixed_gemm.moe_permute(x.cuda(), ids.cuda(), 60)
    for mine, want in zip(found, reference.moe_permute(x, ids, 60), strict=True):
        assert torch.equal(mine.cpu(), want)


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16, torch.float32), ids=str)
def test_positions_that_are_no_row_have_no_effect(dtype):
    rows, weights = torch.randn(90, 136, dtype=dtype), torch.randn(40, 5)
    positions = torch.randint(-2, 93, (40, 5), dtype=torch.int32)
    positions[0, 0], positions[1, 1] = 2**31 - 1, -(2**31)
    for given in (weights, weights.to(dtype)):
        out = mixed_gemm.moe_combine(rows.cuda(), positions.cuda(), given.cuda())
        assert torch.equal(out.cpu(), reference.moe_combine(rows, positions, given))


def way(x: Tensor, ids: Tensor, weights: Tensor, experts: int) -> Tensor:
    rows, offs, positions = mixed_gemm.moe_permute(x, ids, experts)
    gated = mixed_gemm.gated_activation(torch.cat((rows, rows), -1), activation="swiglu_oai")
    return mixed_gemm.moe_combine(gated + offs[:1], positions, weights)


@pytest.mark.parametrize("m", (1, 16, 600))
def test_a_graph_takes_any_routing(m):
    x = torch.randn(m, 256, device="cuda", dtype=torch.float16)
    ids = torch.zeros(m, 4, device="cuda", dtype=torch.int64)
    weights = torch.rand(m, 4, device="cuda")
    way(x, ids, weights, 32)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = way(x, ids, weights, 32)
    for low, high in ((0, 32), (31, 32), (-1, 0), (-1, 33), (0, 1)):
        ids.copy_(torch.randint(low, high, ids.shape))
        x.normal_()
        graph.replay()
        assert torch.equal(out, way(x, ids, weights, 32))


def test_nothing_waits_for_the_gpu():
    x, ids = torch.randn(64, 256, device="cuda"), torch.randint(0, 8, (64, 2), device="cuda")
    weights = torch.rand(64, 2, device="cuda")
    way(x, ids, weights, 8)
    torch.cuda.set_sync_debug_mode("error")
    try:
        way(x, ids, weights, 8)
    finally:
        torch.cuda.set_sync_debug_mode("default")
