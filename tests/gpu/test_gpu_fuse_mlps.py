"""MLPs of a model on CUDA: ``fuse_`` lets them run in three ops without being asked, within the
rounding of their dtype, in one CUDA graph, too."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mixed_gemm
from benchmarks.counting import counting
from mixed_gemm.nn.plain_mlp import PlainMLP

pytestmark = pytest.mark.gpu

K, INNER = 128, 256


def pair(dtype: torch.dtype, activation: str = "silu") -> tuple[Any, Any, Tensor]:
    """(in three ops, one by one, activations)."""
    torch.manual_seed(0)
    layers = [nn.Linear(K, INNER), nn.Linear(K, INNER), nn.Linear(INNER, K)]
    own = PlainMLP(*layers, activation).eval().to("cuda", dtype)
    mixed_gemm.quantize_(own, "w4a16", group_size=64, progress=False)
    model, x = copy.deepcopy(own), torch.randn(5, K, device="cuda", dtype=dtype)
    report = mixed_gemm.fuse_(model, example_inputs=x)
    assert report.mlps == {"": activation} and not report.other_mlps
    return model, own, x


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16, torch.float32), ids=str)
@pytest.mark.parametrize("activation", ("silu", "gelu", "gelu_tanh", "relu"))
def test_three_ops_within_rounding(activation: str, dtype: torch.dtype) -> None:
    model, own, x = pair(dtype, activation)
    with torch.no_grad():
        with counting() as count:
            found = model(x)
        wanted = own(x)
    assert count.calls == 3
    size = float(wanted.float().square().mean().sqrt())
    most = {torch.float16: 4e-3, torch.bfloat16: 4e-2, torch.float32: 1e-3}[dtype]
    assert float((found.float() - wanted.float()).abs().max()) <= most * size


def test_a_cuda_graph_computes_the_same() -> None:
    model, _, x = pair(torch.bfloat16)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        wanted = model(x)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            found = model(x)
        graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(found, wanted)
