"""Linear with float8 weights on CUDA: activations rounded to the bits of the CPU, products against
float64 of the stored numbers, gradients, graphs, and GPUs that multiply no float8.
"""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from scaled_configs import DEVICE
from support import float8_files
from torch import nn

import mixed_gemm
from mixed_gemm import Linear, Scheme, open_checkpoint, reference
from mixed_gemm.ops import quantize_fp8
from mixed_gemm.reference import scaled as reference_scaled
from mixed_gemm.weights import fp8
from mixed_gemm.weights.rounding_fp8 import quantize_with

pytestmark = pytest.mark.gpu

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
ROUNDED = {
    "channel, dynamic": Scheme.fp8(),
    "channel, static": Scheme.fp8("static"),
    "tensor, dynamic": Scheme.fp8(strategy="tensor"),
}
DENSE = {
    "channel, none": Scheme.fp8(None),
    "block": Scheme.fp8(strategy="block", block=(128, 128)),
    "ragged block": Scheme.fp8(strategy="block", block=(48, 40)),
}
ALL = {**ROUNDED, **DENSE}
# torch._scaled_mm takes the first on 9.0, our kernel the second.
SHAPES = ((256, 512), (72, 100))


def layer(name: str, shape: tuple[int, int], dtype: torch.dtype) -> Linear:
    torch.manual_seed(0)
    scheme, (n, k) = ALL[name], shape
    static = {"input_range": (-4.0, 5.0)} if scheme.activations == "static" else {}
    return Linear.from_float(nn.Linear(k, n).to(dtype), scheme, **static)


def multiplies_float8() -> None:
    if torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("this GPU multiplies no float8")


def as_on_this_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no kernel for the GPU has scales of blocks, the CPU makes such weights dense too."""
    ask, on_gpu = fp8.why_not_scaled, torch.empty(0, device=DEVICE).device
    monkeypatch.setattr(
        fp8, "why_not_scaled", lambda dtype, size, device: ask(dtype, size, on_gpu) if size else ""
    )


def test_rounding_is_that_of_the_cpu() -> None:
    for dtype in FLOATS:
        x = (torch.randn(33, 1000) * torch.logspace(-6, 4, 33)[:, None]).to(dtype)
        x[3, 5], x[4, 6], x[5] = float("nan"), float("inf"), 0.0
        for here, there in zip(quantize_fp8(x), quantize_fp8(x.to(DEVICE)), strict=True):
            here, there = here.float(), there.cpu().float()
            assert torch.equal(here.isnan(), there.isnan())
            assert torch.equal(here.nan_to_num(), there.nan_to_num())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ROUNDED)
def test_rounded_products_are_within_the_bound(
    record, name: str, dtype: torch.dtype, shape: tuple[int, int]
) -> None:
    multiplies_float8()
    module = layer(name, shape, dtype).to(DEVICE)
    for m in (1, 17, 300):
        x = torch.randn(m, shape[1], device=DEVICE).to(dtype)
        with torch.no_grad():
            out = module(x)
        scale = module.weight.input_scale
        q, scale = quantize_fp8(x) if scale is None else (quantize_with(x, scale), scale)
        weight = module.weight
        operands = (q, weight.weight_fp8.t(), scale, weight.weight_scale, module.bias.detach())
        value = reference_scaled.scaled_mm(*operands)
        bound = reference_scaled.error_bound(
            *operands, out_dtype=dtype, sum_epsilon=reference_scaled.HOPPER_FP8_EPSILON
        )
        record(f"fp8-{name}-{str(dtype)[6:]}", reference.error_ratio(out, value, bound))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ALL)
def test_layers_are_those_of_the_cpu(
    name: str, dtype: torch.dtype, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Moved there and back with every bit, and with the same products and gradients."""
    as_on_this_gpu(monkeypatch)
    if name in ROUNDED:
        multiplies_float8()
    here = layer(name, shape, dtype)
    there = copy.deepcopy(here).to(DEVICE)
    assert torch.equal(there.dequantize().cpu(), here.dequantize())
    for part, tensor in there.cpu().weight.tensors().items():
        wanted = here.weight.tensors()[part]
        assert tensor.dtype == wanted.dtype and torch.equal(tensor.float(), wanted.float())
    there = there.to(DEVICE)
    x = torch.randn(9, shape[1]).to(dtype)
    a, b = x.clone().requires_grad_(), x.to(DEVICE).requires_grad_()
    mine, wanted = there(b), here(a)
    close = {"rtol": 2e-2, "atol": 2e-2} if dtype != torch.float32 else {"rtol": 2e-3, "atol": 2e-3}
    torch.testing.assert_close(mine.cpu(), wanted, **close)
    mine.float().square().sum().backward()
    wanted.float().square().sum().backward()
    error = (b.grad.cpu().float() - a.grad.float()).norm() / a.grad.float().norm()
    assert error < 1e-2, error


@pytest.mark.parametrize("name", ALL)
def test_layers_are_captured_and_compiled(name: str) -> None:
    if name in ROUNDED:
        multiplies_float8()
    module = layer(name, SHAPES[0], torch.bfloat16).to(DEVICE).requires_grad_(False)
    x = torch.randn(5, SHAPES[0][1], device=DEVICE).bfloat16()
    expected = module(x)
    torch._dynamo.reset()
    compiled = torch.compile(copy.deepcopy(module), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), expected)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = module(x)
    x.copy_(torch.randn_like(x))
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, module(x)) and not torch.equal(out, expected)


@pytest.mark.parametrize("name", ROUNDED)
def test_older_gpus_make_the_weight_dense(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fp8, "why_not_scaled", lambda *_: "no kernel")
    module = layer(name, SHAPES[0], torch.bfloat16).to(DEVICE)
    x = torch.randn(5, SHAPES[0][1], device=DEVICE).bfloat16()
    with torch.no_grad():
        wanted = nn.functional.linear(x, module.dequantize(), module.bias)
        assert torch.equal(module(x), wanted)


@pytest.mark.parametrize("layout", float8_files.LAYOUTS)
def test_files_are_served(tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    as_on_this_gpu(monkeypatch)
    for loaded in open_checkpoint(float8_files.write(layout, tmp_path / "m")):
        linear = loaded.to_linear(torch.bfloat16).to(DEVICE)
        weight_only = layout.endswith("weight only")
        assert linear.weight.kind == ("fp8_weight_only" if weight_only else "fp8")
        if not weight_only and linear.weight.rounds and linear.weight.block_size is None:
            multiplies_float8()
        x = torch.randn(9, loaded.shape[1], device=DEVICE).bfloat16()
        with torch.no_grad():
            here, there = linear(x).cpu(), linear.cpu()(x.cpu())
        torch.testing.assert_close(here, there, rtol=2e-2, atol=2e-2)


def test_quantize_a_model_on_the_gpu() -> None:
    multiplies_float8()
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 128)).to(DEVICE).half()
    x = torch.randn(50, 256, device=DEVICE).half()
    wanted = model(x).detach().float()
    mixed_gemm.quantize_(model, "fp8", progress=False)
    assert (model(x).detach().float() - wanted).norm() < 0.06 * wanted.norm()
