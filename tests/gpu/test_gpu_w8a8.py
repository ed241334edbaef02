"""The int8 quantizers on CUDA, bit for bit those of the CPU, and Linear with W8A8 weights."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from scaled_configs import DEVICE

import mixed_gemm
from mixed_gemm import Scheme, reference
from mixed_gemm.reference import scaled as reference_scaled
from mixed_gemm.weights.scheme import ACTIVATION_MODES

pytestmark = pytest.mark.gpu

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
# Rows that a block keeps in registers, rows that it reads twice, and K of no vector length.
SHAPES = ((1, 1), (3, 7), (17, 64), (7, 100), (33, 4096), (5, 9001), (4, 40_000), (2, 3, 33))
SPECIAL = (0.0, -0.0, 1e-45, 1e-38, 6e-8, 65504.0, 3e38, -3e38, math.inf, -math.inf, math.nan)


def equal(x: torch.Tensor | None, y: torch.Tensor | None) -> bool:
    """Bit for bit, but any NaN equals any other."""
    if x is None or y is None:
        return x is y
    x, y = x.cpu(), y.cpu()
    if not x.is_floating_point():
        return torch.equal(x, y)
    return torch.equal(x.isnan(), y.isnan()) and torch.equal(x.nan_to_num(-7.0), y.nan_to_num(-7.0))


def rows(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Of many magnitudes; the first all zero, the next with one special value each."""
    g = torch.Generator().manual_seed(len(shape) * shape[-1])
    x = (
        torch.randn(shape, generator=g)
        * torch.logspace(-6, 4, shape[0])[(..., *[None] * (len(shape) - 1))]
    )
    x[0] = 0
    for row, value in zip(range(1, shape[0]), SPECIAL, strict=False):
        x[row].view(-1)[-1] = value
    return x.to(dtype)


@pytest.mark.parametrize("symmetric", (True, False))
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_per_token_equals_cpu(shape, dtype, symmetric):
    x = rows(shape, dtype)
    expected = mixed_gemm.quantize_per_token(x, symmetric=symmetric)
    found = mixed_gemm.quantize_per_token(x.to(DEVICE), symmetric=symmetric)
    assert all(map(equal, found, expected))
    assert [None if t is None else t.shape for t in found] == [
        None if t is None else t.shape for t in expected
    ]


@pytest.mark.parametrize("symmetric", (True, False))
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("k", (1, 7, 8, 13, 256, 257, 1026, 5137, 40_001))
def test_rows_far_from_zero_equal_the_reference(k, dtype, symmetric):
    """Of one sign, constant, with a range that fp32 cannot tell from 0 there or that overflows it,
    and rows of nothing but infinity or NaN. A tail of no vector length must not count as zeros."""
    g = torch.Generator().manual_seed(k)
    offsets = (5.0, -6.0, 1e4, -1e4, 300.0, 7.3, 2.0**-105, 1e-40, 0.0)
    offsets += (math.inf, -math.inf, math.nan)
    x = torch.tensor(offsets).view(-1, 1, 1) * torch.ones(1, 5, 1)
    x = x + torch.tensor([0.0, 1e-45, 1e-3, 1.0, 100.0]).view(1, -1, 1) * torch.rand(
        len(offsets), 5, k, generator=g
    )
    huge = torch.tensor([-3.4e38, 3.4e38]).repeat((k + 1) // 2)[:k].expand(1, 5, k)
    x = torch.cat([x, huge]).to(dtype)
    expected = reference_scaled.quantize_per_token(x, symmetric=symmetric)
    found = mixed_gemm.quantize_per_token(x.to(DEVICE), symmetric=symmetric)
    assert all(map(equal, found, expected))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("symmetric", (True, False))
def test_ties_round_to_even(dtype, symmetric):
    """By the reference, not by the CPU's kernels, which could make the same mistake."""
    steps = torch.arange(-64, 64) + 0.5  # exact in each dtype
    ends = torch.tensor([127.0]) if symmetric else torch.tensor([-127.0, 128.0])
    x = torch.cat([steps, ends]).to(dtype).repeat(3, 1)  # the scale of a row is 1
    expected = reference_scaled.quantize_per_token(x, symmetric=symmetric)
    assert (expected[1] == 1).all()
    found = mixed_gemm.quantize_per_token(x.to(DEVICE), symmetric=symmetric)
    assert all(map(equal, found, expected))
    one = torch.ones(1)
    per_tensor = mixed_gemm.quantize_per_tensor(x.to(DEVICE), one.to(DEVICE))
    assert equal(per_tensor, reference_scaled.quantize_per_tensor(x, one))


@pytest.mark.parametrize("azp", (None, 0, 3, -128, 300, -(2**20) - 1, 2**31 - 1, -(2**31)))
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_per_tensor_equals_cpu(dtype, azp):
    for shape in SHAPES:
        x = rows(shape, dtype)
        for step in (0.02, 1e-30, 1e30):
            scale = torch.tensor(step)
            point = None if azp is None else torch.tensor(azp, dtype=torch.int32)
            expected = mixed_gemm.quantize_per_tensor(x, scale, point)
            on_gpu = [None if t is None else t.to(DEVICE) for t in (x, scale, point)]
            assert torch.equal(mixed_gemm.quantize_per_tensor(*on_gpu).cpu(), expected), shape


@pytest.mark.parametrize("azp", (2**22, -(2**22), 2**22 + 100, -(2**23), 2**31 - 1, -(2**31)))
def test_huge_zero_points_equal_cpu(azp):
    """Near -azp and near the limit, where q is not simply saturated."""
    limit, steps = max(-(2**22), min(2**22, azp)), torch.arange(-200, 200)
    x = torch.stack([steps - limit, steps - azp]).float()
    scale, point = torch.tensor(1.0), torch.tensor(azp, dtype=torch.int32)
    found = mixed_gemm.quantize_per_tensor(x.to(DEVICE), scale.to(DEVICE), point.to(DEVICE))
    assert torch.equal(found.cpu(), mixed_gemm.quantize_per_tensor(x, scale, point))


def test_rows_without_elements():
    x = rows((12, 328), torch.float16).to(DEVICE)
    for symmetric in (True, False):
        q, scale, azp = mixed_gemm.quantize_per_token(x[:, :0], symmetric=symmetric)
        assert q.shape == (12, 0) and (scale == torch.finfo(torch.float32).tiny).all()
        assert azp is None or (azp == -128).all()


def test_many_rows():
    """More than a grid has in y."""
    x = torch.randn(70_000, 24).half()
    for symmetric in (True, False):
        found = mixed_gemm.quantize_per_token(x.to(DEVICE), symmetric=symmetric)
        assert all(map(equal, found, mixed_gemm.quantize_per_token(x, symmetric=symmetric)))
    scale = torch.tensor(0.02)
    found = mixed_gemm.quantize_per_tensor(x.to(DEVICE), scale.to(DEVICE))
    assert torch.equal(found.cpu(), mixed_gemm.quantize_per_tensor(x, scale))


# --- the layer --------------------------------------------------------------------------------


def layer(activations: str, dtype: torch.dtype, smoothing: bool) -> mixed_gemm.Linear:
    torch.manual_seed(1)
    linear = torch.nn.Linear(264, 130).to(dtype)
    factors = 0.5 + torch.rand(264) if smoothing else None
    return mixed_gemm.Linear.from_float(
        linear, Scheme.w8a8(activations), input_range=(-3.0, 5.0), smoothing=factors
    )


def oracle(module: mixed_gemm.Linear, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(exact, bound) of the product of what the CPU rounds the rows to."""
    weight = module.weight
    mode = ACTIVATION_MODES[module.scheme.activations]
    x = x if module.pre_scale is None else x * module.pre_scale
    if mode.dynamic:
        q, scale, azp = mixed_gemm.quantize_per_token(x, symmetric=mode.symmetric)
    else:
        q = mixed_gemm.quantize_per_tensor(x, weight.input_scale, weight.input_azp)
        scale, azp = weight.input_scale, None
    operands = (q, weight.weight_int8.t(), scale, weight.weight_scale, module.bias.detach())
    points = {"azp_adj": weight.azp_adj, "azp": azp}
    exact = reference_scaled.scaled_mm(*operands, **points)
    return exact, reference_scaled.error_bound(*operands, out_dtype=x.dtype, **points)


@pytest.mark.parametrize("smoothing", (False, True))
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("activations", ACTIVATION_MODES)
def test_layer_equals_cpu(record, activations, dtype, smoothing):
    on_cpu = layer(activations, dtype, smoothing)
    on_gpu = copy.deepcopy(on_cpu).to(DEVICE)
    for shape in ((1, 264), (2, 9, 264), (100, 264), (0, 264), (264,)):
        x = (torch.randn(shape) * 1.5 + 0.5).to(dtype)
        with torch.no_grad():
            expected, found = on_cpu(x), on_gpu(x.to(DEVICE)).cpu()
            exact, bound = oracle(on_cpu, x)
        assert found.dtype == dtype and found.shape == expected.shape
        record(f"layer-cpu-{activations}", reference.error_ratio(expected, exact, bound))
        record(f"layer-cuda-{activations}", reference.error_ratio(found, exact, bound))


@pytest.mark.parametrize("activations", ACTIVATION_MODES)
def test_gradients_equal_cpu(activations):
    """Straight through the rounding: the same integers, so the same products up to float32."""
    on_cpu = layer(activations, torch.float32, True)
    on_gpu = copy.deepcopy(on_cpu).to(DEVICE)
    gradients = []
    for module, device in ((on_cpu, "cpu"), (on_gpu, DEVICE)):
        x = torch.linspace(-3, 5, 6 * 264).view(6, 264).to(device).requires_grad_()
        weights = torch.linspace(-1, 1, 6 * 130).view(6, 130).to(device)
        (module(x) * weights).sum().backward()
        gradients.append((x.grad.cpu(), module.bias.grad.cpu()))
    for expected, found in zip(*gradients, strict=True):
        assert torch.allclose(found, expected, rtol=1e-3, atol=1e-3 * expected.abs().max())


def test_compiled_layer_equals_eager():
    module = layer("dynamic_azp", torch.float16, True).to(DEVICE)
    x = torch.randn(7, 264, device=DEVICE, dtype=torch.float16)
    with torch.no_grad():
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(x), module(x))


def test_quantized_model_runs_where_it_is_moved(record):
    """quantize_ on the CPU, then cuda(); and quantize_ of a model that is on the GPU."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.LayerNorm(128),
        torch.nn.Linear(128, 256),
        torch.nn.GELU(),
        torch.nn.Linear(256, 64),
    )
    batches = [torch.randn(16, 128) for _ in range(4)]
    x = torch.randn(32, 128)
    with torch.no_grad():
        dense = model(x)
        for activations in ACTIVATION_MODES:
            moved, there = copy.deepcopy(model), copy.deepcopy(model).to(DEVICE)
            options = {"scheme": "w8a8", "activations": activations, "smooth": 0.5}
            mixed_gemm.quantize_(moved, **options, calibration=batches)
            mixed_gemm.quantize_(there, **options, calibration=[b.to(DEVICE) for b in batches])
            for quantized in (moved.to(DEVICE), there):
                out = quantized(x.to(DEVICE)).cpu()
                error = (out - dense).norm() / dense.norm()
                assert error < 0.03, (activations, error)
