"""Experts of a mixture on CUDA: exact results for routings of all kinds (problems/experts.py,
problems/fused_moe.py), in one CUDA graph, too."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from problems import experts, fused_moe
from torch import Tensor

pytest.importorskip("transformers", minversion="5.24", reason="optional: hf extra")

pytestmark = pytest.mark.gpu

HALVES = [torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(("count", "k"), [(1, 1), (4, 2), (16, 4), (64, 8)])
@pytest.mark.parametrize("tokens", [0, 1, 7, 200])
@pytest.mark.parametrize("routing", experts.ROUTINGS)
def test_every_row_goes_to_its_expert(
    routing: str, tokens: int, count: int, k: int, dtype: torch.dtype
) -> None:
    experts.check(routing, tokens, count, k, dtype, "cuda")


def on_cuda(problem: fused_moe.Problem) -> fused_moe.Problem:
    def moved(x: object) -> object:
        if isinstance(x, Tensor):
            return x.cuda()
        parts = {name: y for name, y in vars(x).items() if isinstance(y, Tensor)}
        return dataclasses.replace(x, **{name: y.cuda() for name, y in parts.items()})  # type: ignore[type-var]

    names = ("x", "w13", "w2", "weights", "ids")
    return dataclasses.replace(problem, **{x: moved(getattr(problem, x)) for x in names})


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("tokens", [0, 1, 7, 60])
@pytest.mark.parametrize(("count", "k"), [(1, 1), (8, 4), (256, 8)])
def test_sums_that_are_exact_are_exact(count: int, k: int, tokens: int, dtype: torch.dtype) -> None:
    torch.manual_seed(count + tokens)
    problem = fused_moe.exact(count, k, tokens, dtype)
    wanted, mine = problem.wanted(activation="relu").to(dtype), on_cuda(problem)
    for _ in range(2):
        assert torch.equal(mine.run(activation="relu").cpu(), wanted)


@pytest.mark.parametrize("activation", [*fused_moe.ACTIVATIONS, "swiglu_oai"])
@pytest.mark.parametrize("scheme", fused_moe.SCHEMES)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_results_are_those_of_float64(dtype: torch.dtype, scheme: str, activation: str) -> None:
    problem = fused_moe.made(scheme, tokens=33, biases=True, dtype=dtype)
    options = {"activation": activation, "limit": 2.0}
    wanted = problem.wanted(**options)  # type: ignore[arg-type]
    found = on_cuda(problem).run(**options).cpu().double()
    near = 4e-3 if dtype == torch.float16 else 3e-2
    assert (found - wanted).abs().max() < near * wanted.abs().max().clamp(min=1)


def test_one_cuda_graph_is_right_for_every_routing() -> None:
    layer, _ = experts.experts_of(8, torch.float16, "cuda")
    x, weights = torch.randn(16, experts.HIDDEN).half().cuda(), torch.rand(16, 2).cuda()
    index = torch.zeros(16, 2, dtype=torch.int64, device="cuda")
    with torch.no_grad():
        layer(x, index, weights)  # stacks the weights
        assert not layer.why_one_by_one
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = layer(x, index, weights)
        for seed in range(5):
            torch.manual_seed(seed)
            index.copy_(torch.randint(0, 8 if seed else 1, (16, 2)))
            graph.replay()
            assert torch.equal(out, layer(x, index, weights))
            wanted = layer._one_by_one(x, index, weights)
            assert torch.allclose(out, wanted, rtol=1e-2, atol=1e-2)
