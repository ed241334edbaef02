"""A float8 Linear under torch.compile, without a warning: which way its product goes is a question
about the device, whose answer is cached, and Dynamo warns of caches that it looks into. Devices are
those of fake tensors, with the compute capability that the test says.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from mixed_gemm import Linear, Scheme
from mixed_gemm.ops import scaled

N, K = 256, 512
SCHEMES = {
    "channel": Scheme.fp8(),
    "tensor": Scheme.fp8(strategy="tensor"),
    "static": Scheme.fp8("static"),
    "unrounded": Scheme.fp8(None),
    "blocks of 128": Scheme.fp8(strategy="block", block=(128, 128)),
    "blocks of a row": Scheme.fp8(strategy="block", block=(1, K)),
}


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    torch._dynamo.reset()
    scaled._why_not_on_cuda.cache_clear()
    yield
    torch._dynamo.reset()
    scaled._why_not_on_cuda.cache_clear()


def ops_of(scheme: Scheme, device: str) -> list[str]:
    """The ops of ours in the graph of a layer, or "linear"; every warning is an error."""
    found: list[str] = []

    def keep(graph: torch.fx.GraphModule, _: Any) -> torch.fx.GraphModule:
        calls = (node for node in graph.graph.nodes if node.op == "call_function")
        names = [getattr(node.target, "__name__", str(node.target)) for node in calls]
        found.extend(x for x in names if x in ("linear", "scaled_mm", "fpA_fpB_gemm"))
        return graph

    with warnings.catch_warnings(), FakeTensorMode():
        warnings.simplefilter("error")
        layer = Linear(K, N, scheme=scheme, device=device, dtype=torch.bfloat16)
        x = torch.empty(5, K, device=device, dtype=torch.bfloat16)
        out = torch.compile(layer.requires_grad_(False), fullgraph=True, backend=keep)(x)
        assert out.shape == (5, N) and out.device.type == device
    return found


def multiplies(capability: tuple[int, int], name: str) -> bool:
    if name.startswith("blocks"):
        return capability == (9, 0) and name == "blocks of 128"
    return name != "unrounded" and capability >= (8, 9)


CAPABILITIES = ((8, 0), (8, 9), (9, 0), (10, 0), (12, 0))


# torch without CUDA repeats no elements of a fake tensor on CUDA, as a dense weight needs whose
# blocks have several rows.
@pytest.mark.parametrize(
    ("name", "capability"),
    [(x, y) for x in SCHEMES for y in CAPABILITIES if multiplies(y, x) or x != "blocks of 128"],
    ids=str,
)
def test_graphs_of_gpus_have_the_op_or_a_dense_product(
    monkeypatch: pytest.MonkeyPatch, name: str, capability: tuple[int, int]
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
    with_op = multiplies(capability, name)
    product = "fpA_fpB_gemm" if name == "unrounded" else "scaled_mm" if with_op else "linear"
    assert ops_of(SCHEMES[name], "cuda") == [product]


@pytest.mark.parametrize("name", SCHEMES)
def test_graphs_of_cpus_have_the_op(name: str) -> None:
    assert ops_of(SCHEMES[name], "cpu") == ["fpA_fpB_gemm" if name == "unrounded" else "scaled_mm"]


def test_a_layer_asks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def capability(device: Any = None) -> tuple[int, int]:
        asked.append(device)
        return 8, 6

    monkeypatch.setattr(torch.cuda, "get_device_capability", capability)
    device = torch.device("cuda", 3)
    for _ in range(3):
        reason = scaled.why_not_scaled(torch.float8_e4m3fn, None, device)
        assert reason == "no GPU before compute capability 8.9 multiplies float8"
    assert asked == [device]
    assert scaled.why_not_scaled(torch.int8, None, device) == ""
    for block in ((128, 128), (48, 40)):
        of = f"blocks of {block[0]} x {block[1]}"
        reason = scaled.why_not_scaled(torch.float8_e4m3fn, block, device)
        assert reason == f"no kernel for this GPU multiplies float8 with scales of {of}"
        assert scaled.why_not_scaled(torch.float8_e4m3fn, block, torch.device("cpu")) == ""
        assert scaled.why_not_scaled(torch.float8_e4m3fn, block, torch.device("meta")) == ""
