"""Products of experts on CUDA, by every configuration: offsets that a GPU cannot refuse, any
routing in a graph, two streams, and nothing that waits; the whole layer by fused_moe."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from problems import registry
from problems.grouped import GroupedCase, Problem
from torch import Tensor

import mixed_gemm
from mixed_gemm import Scheme, StackedWeight
from mixed_gemm.weights.integer import IntegerWeight

pytestmark = pytest.mark.gpu

EXPERTS, ROWS = 5, 90
LOWEST, HIGHEST = -(2**31), 2**31 - 1
# Offsets, and where the rows of each expert end then.
ODD_OFFSETS = (
    ([-5, 20, 10, 30, 90], [0, 20, 20, 30, 90]),
    ([HIGHEST, 0, 0, 0, 0], [90, 90, 90, 90, 90]),
    ([LOWEST, LOWEST, 40, 39, 91], [0, 0, 40, 40, 90]),
    ([0, 0, 0, 0, LOWEST], [0, 0, 0, 0, 0]),
)


def problem_of(dtype: torch.dtype = torch.float16, m: int = ROWS) -> Problem:
    case = GroupedCase(m, 136, 320, EXPERTS, "even", dtype, 4, 64, "sub", bias=True)
    made: Problem = registry.make(case, "cuda", "cuda")
    return made


def with_offsets(problem: Problem, offs: list[int], config: str | None) -> Tensor:
    problem.offs = torch.tensor(offs, dtype=torch.int32, device="cuda")
    return problem.run(config=config)


@pytest.mark.parametrize(("given", "meant"), ODD_OFFSETS)
def test_offsets_that_are_none_are_clamped(given: list[int], meant: list[int]) -> None:
    problem = problem_of()
    for config in [None, *problem.configs()]:
        out, want = (with_offsets(problem, offs, config) for offs in (given, meant))
        assert torch.equal(out, want), config
        assert not out[meant[-1] :].any(), config


def test_a_graph_takes_any_offsets() -> None:
    problem = problem_of(torch.bfloat16)
    for config in problem.configs():
        problem.run(config=config)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = problem.call(config=config)
        offs = problem.offs
        for ends in ([0, 0, 0, 0, ROWS], [ROWS] * 5, [1, 2, 3, 4, 5], [0] * 5, [1, 9, 51, 68, 85]):
            offs.copy_(torch.tensor(ends))
            graph.replay()
            assert torch.equal(out, problem.call(config=config)), (config, ends)


def test_two_streams_have_their_own_rows() -> None:
    problems = [problem_of(), problem_of(m=700)]
    wanted = [problem.call() for problem in problems]
    streams = [torch.cuda.Stream() for _ in problems]
    torch.cuda.synchronize()
    found: list[list[Tensor]] = [[], []]
    for _ in range(20):
        for problem, stream, outs in zip(problems, streams, found, strict=True):
            with torch.cuda.stream(stream):
                outs.append(problem.call())
    torch.cuda.synchronize()
    for want, outs in zip(wanted, found, strict=True):
        assert all(torch.equal(want, out) for out in outs)


def layer(dtype: torch.dtype, experts: int, hidden: int, inner: int) -> list[StackedWeight]:
    """Weights of -1, 0 and 1, gate and up, and down."""
    made = []
    for n, k in ((2 * inner, hidden), (hidden, inner)):
        weights = []
        for _ in range(experts):
            q = torch.randint(-1, 2, (n, k), dtype=torch.int8, device="cuda")
            scales = torch.ones(k // 32, n, dtype=dtype, device="cuda")
            weights.append([IntegerWeight.from_quantized(q, scales, bits=4, group_size=32)])
        made.append(StackedWeight.of(weights))
    return made


def on_cpu(weight: StackedWeight) -> StackedWeight:
    order = None if weight.permutation is None else weight.permutation.cpu()
    return StackedWeight(
        weight.b_packed.cpu(), weight.scales.cpu(), weight.scheme, permutation=order
    )


@pytest.mark.parametrize("has_order", (False, True))
@pytest.mark.parametrize("m", (1, 40, 1500))
def test_a_graph_of_a_layer_takes_any_routing(m: int, has_order: bool) -> None:
    first, second = layer(torch.bfloat16, 16, 128, 64)
    assert first.scheme == Scheme.weight_only(4, 32)
    if has_order:  # columns of each expert in an order of its own
        orders = torch.stack([torch.randperm(128, device="cuda") for _ in range(16)])
        first = replace(first, permutation=orders)
    # One column of a token is not 0, so that every sum is exact, and a CPU gives the same bits.
    x = torch.zeros(m, 128, device="cuda", dtype=torch.bfloat16)
    ids = torch.randint(0, 16, (m, 4), device="cuda")
    weights = 2.0 ** -torch.randint(0, 3, (m, 4), device="cuda")
    tokens = torch.arange(m, device="cuda")

    def run() -> Tensor:
        return mixed_gemm.fused_moe(x, first, second, weights, ids, activation="relu")

    run()
    torch.cuda.set_sync_debug_mode("error")
    try:
        run()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run()
    for low, high in ((0, 16), (15, 16), (0, 1), (-1, 17)):
        ids.copy_(torch.randint(low, high, ids.shape))
        x.zero_()
        x[tokens, torch.randint(0, 128, (m,), device="cuda")] = 1
        graph.replay()
        assert torch.equal(out, run()), (low, high)
        cpu = mixed_gemm.fused_moe(
            x.cpu(),
            *map(on_cpu, (first, second)),
            weights.cpu(),
            ids.cpu(),
            activation="relu",
        )
        assert torch.equal(out.cpu(), cpu), (low, high)
        assert low < 0 or bool(out.any())
