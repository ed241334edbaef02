"""Weights whose scales lie among the subnormal numbers of float16, 6e-8 apart: each weight is
within half a step of what it was, and the step is the smallest that float16 has for its group.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import mixed_gemm
from mixed_gemm.weights.rounding import nonzero_scale

QUANTUM = 2.0**-24  # the smallest number of float16
EXTENTS = (1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 40, 100, 127, 128, 129, 200, 255, 256, 300, 900, 5000)
K = 64


def small_weight(*inner: int) -> torch.Tensor:
    """float16 whose row n has integers times QUANTUM, the largest of them EXTENTS[n] or its
    negative, and an ordinary row at the end."""
    torch.manual_seed(1)
    rows = []
    for i, extent in enumerate(EXTENTS):
        row = torch.randint(-extent, extent + 1, inner).double()
        row.view(-1)[i % row.numel()] = extent if i % 2 else -extent
        rows.append(row * QUANTUM)
    rows.append(torch.randn(inner).double())
    return torch.stack(rows).half()


def smallest_step(extent: torch.Tensor, steps: int) -> torch.Tensor:
    """The smallest float16 by which ``extent`` is at most so many steps, float64."""
    exact = extent.double() / steps
    return torch.where(exact < 2.0**-14, (exact / QUANTUM).ceil() * QUANTUM, exact)


def assert_within_half_a_step(
    found: torch.Tensor,
    weight: torch.Tensor,
    bits: int,
    symmetric: bool,
    group: int,
    any_scale: bool = False,
) -> None:
    """Args: found, weight: ``[N, K]``. group: elements of K that share a scale. any_scale: scales
    are float32, which has all of them."""
    weight, found = weight.double(), found.double()
    x = weight.view(len(weight), -1, group)
    error = (found - weight).abs().view(x.shape)
    if symmetric:
        extent = x.abs().amax(-1, keepdim=True)
        steps = 2 ** (bits - 1)
        step = extent / steps if any_scale else smallest_step(extent, steps)
        # The larger side ends at the code -2^(bits - 1), the other one a code before it.
        largest = x.gather(-1, x.abs().argmax(-1, keepdim=True))
        clipped = (x.sign() != largest.sign()) & (x.abs() > (2 ** (bits - 1) - 1.5) * step)
        allowed = torch.where(clipped, step, step / 2)
    else:
        low, high = x.amin(-1, keepdim=True).clamp(max=0), x.amax(-1, keepdim=True).clamp(min=0)
        # The zero point rounds, too: by up to half a step at either end.
        allowed = smallest_step(high - low, 2**bits - 1).expand_as(x)
    # Scales of ordinary size, and values that rounding to float16 moves, have 11 bits.
    allowed = allowed + 2.0**-11 * x.abs()
    assert (error <= allowed).all(), (error / allowed).amax((1, 2))


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("mode", ["none", "sub", "add"])
@pytest.mark.parametrize("group", [-1, 16, 32])
def test_integers_keep_small_weights(bits, mode, group):
    weight = small_weight(K)
    scheme = mixed_gemm.Scheme.weight_only(bits, group, mode)
    layer = mixed_gemm.Linear.from_float(_linear(weight), scheme)
    size = K if group == -1 else group
    found = layer.weight.dequantize(torch.float32)
    assert_within_half_a_step(found, weight, bits, mode == "none", size)
    x = (torch.randn(8, K) * 100).half()
    exact = x.double() @ found.double().t()
    # 2^-11 for the rounding of the result, and what float16 has no room for.
    error = (layer(x).double() - exact).abs()
    assert (error <= 2.0**-10 * (x.double().abs() @ found.double().abs().t()) + QUANTUM).all()


def _linear(weight: torch.Tensor) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=weight.dtype)
    linear.weight = nn.Parameter(weight.clone())
    return linear


def test_int8_by_block_keeps_small_weights():
    weight = small_weight(128)
    layer = mixed_gemm.Linear.from_float(_linear(weight), "w8a8_block")
    assert_within_half_a_step(layer.weight.dequantize(torch.float32), weight, 8, True, 128)


@pytest.mark.parametrize("scheme", ["w8a8", "fp8", "fp8_block"])
def test_schemes_with_scales_in_float32_keep_small_weights(scheme):
    weight = small_weight(128)
    layer = mixed_gemm.Linear.from_float(_linear(weight), scheme)
    found = layer.weight.dequantize(torch.float32).double()
    # Scales of blocks of rows are for the largest of them: rows by themselves, then.
    if scheme == "fp8_block":
        found = torch.cat([
            mixed_gemm.Linear.from_float(_linear(row[None]), scheme).weight.dequantize()
            for row in weight
        ]).double()  # fmt: skip
    error = (found - weight.double()).norm(dim=1) / weight.double().norm(dim=1)
    assert (error <= (0.04 if "fp8" in scheme else 0.009)).all(), error


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("symmetric", [True, False])
def test_convolutions_keep_small_weights(bits, symmetric):
    weight = small_weight(16, 2, 2)
    conv = nn.Conv2d(16, len(weight), 2, bias=False, dtype=torch.float16)
    conv.weight = nn.Parameter(weight.clone())
    model = nn.Sequential(conv)
    scheme = mixed_gemm.Scheme.weight_only(bits, -1, "none" if symmetric else "add")
    mixed_gemm.quantize_(model, scheme, block_size=-1, progress=False)
    found = model[0].weight.dequantize(torch.float32).reshape(len(weight), -1)
    assert_within_half_a_step(found, weight.reshape(len(weight), -1), bits, symmetric, 64)


def test_rows_of_embeddings_keep_small_weights():
    weight = small_weight(K)
    table = nn.Embedding(len(weight), K, dtype=torch.float16)
    table.weight = nn.Parameter(weight.clone())
    model = nn.Sequential(table)
    mixed_gemm.quantize_(model, embeddings=True, progress=False)
    found = model[0].weight.dequantize(torch.float32)
    assert_within_half_a_step(found, weight, 8, True, K, any_scale=True)
    assert torch.equal(model[0](torch.arange(len(weight))), found.half())


METHODS = ["rtn", "hqq", "awq", "gptq", "awq+gptq", "autoround"]


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("method", METHODS)
def test_methods_cost_small_weights_at_most_the_larger_steps(method, bits, symmetric):
    """The same weights times 2^16 have scales as they like. Steps of the small ones are less than
    twice as large, or the smallest that there is, which costs nothing."""
    weight = small_weight(K)[:-1]
    inputs = [torch.randn(16, K) for _ in range(4)]
    errors = []
    for factor in (1.0, 2.0**16):
        model = nn.Sequential(_linear((weight.double() * factor).half()))
        needs_data = method not in ("rtn", "hqq")
        mixed_gemm.quantize_(
            model, bits=bits, group_size=32, symmetric=symmetric, method=method, progress=False,
            calibration=[x.half() for x in inputs] if needs_data else None,
        )  # fmt: skip
        found = model[0].weight.dequantize(torch.float32).double() / factor
        change = torch.cat(inputs).double() @ (found - weight.double()).t()
        errors.append(change.norm(dim=0))
    assert (errors[0] <= 2 * errors[1] + QUANTUM * K).all(), errors[0] / errors[1]


@pytest.mark.parametrize("scheme", ["w8a16", "w4a16", "w4a16_asym"])
def test_assigned_small_weights_are_kept(scheme):
    layer = mixed_gemm.Linear.from_float(_linear(torch.randn(len(EXTENTS) + 1, 128).half()), scheme)
    weight = small_weight(128)
    assigned = copy.deepcopy(layer)
    assigned.weight.data = weight
    fresh = mixed_gemm.Linear.from_float(_linear(weight), scheme)
    for found in (assigned.weight, layer.weight.requantized(weight)):
        assert torch.equal(found.dequantize(), fresh.weight.dequantize())
        # Rows whose largest weight is one step at most are exact.
        assert torch.equal(found.dequantize()[:5].abs(), weight[:5].abs())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_scales_below_normal_numbers_are_the_next_ones_away_from_zero(dtype):
    info = torch.finfo(dtype)
    step = info.tiny * info.eps
    multiples = torch.tensor([0.01, 0.5, 1, 1.2, 2, 2.5, 100.25])
    scales = (multiples.double() * step).float()
    wanted = (torch.tensor([1.0, 1, 1, 2, 2, 3, 101]).double() * step).float()
    for sign in (1, -1):
        assert torch.equal(nonzero_scale(sign * scales, dtype), sign * wanted)
    assert nonzero_scale(torch.zeros(1), dtype).item() == 1.0


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("mode", ["none", "sub", "add"])
def test_a_cast_of_small_scales_rounds_codes_instead_of_losing_them(bits, mode):
    """As files with scales in float32 or bfloat16 are loaded into a float16 model."""
    torch.manual_seed(2)
    factors = QUANTUM * 10.0 ** torch.linspace(-2, 6, 40).double()
    weight = (torch.randn(40, K).double() * factors[:, None]).float()
    scheme = mixed_gemm.Scheme.weight_only(bits, 16, mode)
    layer = mixed_gemm.Linear.from_float(_linear(weight), scheme)
    exact = layer.weight.dequantize(torch.float32)
    stored = layer.to_quantized_weight()
    wide = stored.scales.double().t().repeat_interleave(16, 1).abs()
    step = torch.where(wide < 2.0**-14, (wide / QUANTUM).ceil() * QUANTUM, 0)
    cast, halved = layer.weight.cast(torch.float16), copy.deepcopy(layer).half().weight
    for found in (stored.to(torch.float16), cast, halved):
        dense = found.dequantize(torch.float32)
        # Half a step of the scale that takes the place; scales and zeros of 11 bits elsewhere.
        zeros = 0 if stored.zeros is None or mode == "sub" else stored.zeros.float().abs()
        zeros = zeros if isinstance(zeros, int) else zeros.t().repeat_interleave(16, 1)
        allowed = step / 2 + 2.0**-11 * (exact.double().abs() + 2 * zeros) + QUANTUM / 2
        assert ((dense.double() - exact.double()).abs() <= allowed).all()
    assert torch.equal(stored.to(torch.bfloat16).q, stored.q)  # which has them all


def test_a_cast_of_ordinary_scales_shares_the_codes():
    layer = mixed_gemm.Linear.from_float(_linear(torch.randn(32, K)), "w8a16")
    stored = layer.to_quantized_weight()
    assert stored.to(torch.float16).q.data_ptr() == stored.q.data_ptr()
