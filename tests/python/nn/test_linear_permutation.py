"""``mixed_gemm.Linear`` with the order of K that GPTQ's act-order leaves."""

from __future__ import annotations

import pytest
import torch

import mixed_gemm
from mixed_gemm import reference

N, K = 72, 96


@pytest.fixture
def parts() -> dict:
    order = torch.randperm(K)
    return {
        "q": torch.randint(-8, 8, (N, K), dtype=torch.int8),
        "scales": torch.rand(K // 32, N) + 0.1,
        "zeros": torch.randint(-8, 8, (K // 32, N)).float(),
        "bias": torch.randn(N),
        "pre_scale": torch.rand(K) + 0.5,
        "permutation": order,
        "bits": 4,
        "group_size": 32,
    }


def dense(parts: dict) -> torch.Tensor:
    """float64 ``[N, K]`` in the order of the activations, pre_scale included; column by column."""
    sorted_weight = (
        reference.dequantize(parts["q"], parts["scales"], parts["zeros"], group_size=32)
        * parts["pre_scale"].double()
    )
    weight = torch.empty(N, K, dtype=torch.float64)
    for j, k in enumerate(parts["permutation"].tolist()):
        weight[:, k] = sorted_weight[:, j]
    return weight


def test_forward_takes_activations_in_their_own_order(parts):
    linear = mixed_gemm.Linear.from_quantized(**parts)
    a = torch.randn(2, 5, K)
    exact = a.double() @ dense(parts).t() + parts["bias"].double()
    scheme = {"group_size": 32, "zero_mode": "sub"}
    inputs = [parts[x] for x in ("q", "scales", "zeros", "bias", "pre_scale")]
    bound = reference.error_bound(a[..., parts["permutation"]], *inputs, **scheme)
    assert reference.error_ratio(linear(a).detach(), exact, bound) <= 1.0
    assert reference.error_ratio(linear(a[0, 0]).detach(), exact[0, 0], bound[0, 0]) <= 1.0


def test_dequantize_and_to_float_are_in_the_order_of_the_activations(parts):
    linear = mixed_gemm.Linear.from_quantized(**parts)
    wanted = dense(parts)
    found = linear.to_float().weight.double()
    assert torch.allclose(found, wanted, rtol=2**-22, atol=0)
    assert torch.equal(linear.dequantize().double(), found)


def test_state_dict_round_trips_and_keeps_the_order(parts):
    linear = mixed_gemm.Linear.from_quantized(**parts)
    again = mixed_gemm.Linear(
        K, N, bits=4, group_size=32, zero_mode="sub", pre_scale=True, permutation=True
    )
    again.load_state_dict(linear.state_dict())
    a = torch.randn(3, K)
    assert torch.equal(again(a), linear(a))
    assert "permutation=True" in repr(linear)


def test_state_dict_of_another_kind_is_refused(parts):
    linear = mixed_gemm.Linear.from_quantized(**parts)
    plain = mixed_gemm.Linear(K, N, bits=4, group_size=32, zero_mode="sub", pre_scale=True)
    with pytest.raises(RuntimeError, match="the packed weight is of another kind"):
        plain.load_state_dict(linear.state_dict(), strict=False)
    state = linear.state_dict()
    state["permutation"] = torch.zeros(K, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"permutation must hold each of 0\.\.95 once"):
        linear.load_state_dict(state)
    state["permutation"] = torch.arange(K + 1)
    with pytest.raises(RuntimeError, match=r"permutation must be \(96,\), got \(97,\)"):
        linear.load_state_dict(state)
    state["permutation"] = torch.arange(K).int()
    with pytest.raises(RuntimeError, match=r"permutation must be torch\.int64, got torch\.int32"):
        linear.load_state_dict(state)


@pytest.mark.parametrize("value", [torch.zeros(K, dtype=torch.int64), torch.arange(K) - 1])
def test_from_quantized_refuses_what_is_no_permutation(parts, value):
    with pytest.raises(ValueError, match=r"permutation must hold each of 0\.\.95 once"):
        mixed_gemm.Linear.from_quantized(**{**parts, "permutation": value})


def test_gradients_reach_the_activations_in_their_own_order(parts):
    linear = mixed_gemm.Linear.from_quantized(**parts)
    a = torch.randn(4, K, requires_grad=True)
    grad = torch.randn(4, N)
    linear(a).backward(grad)
    wanted = grad.double() @ dense(parts)
    assert torch.allclose(a.grad.double(), wanted, rtol=0, atol=1e-4 * float(wanted.abs().max()))


def test_moves_and_casts_leave_the_order_alone(parts):
    linear = mixed_gemm.Linear.from_quantized(**parts)
    half = linear.half()
    assert half.permutation.dtype == torch.int64
    assert torch.equal(half.permutation, parts["permutation"])
    assert linear.to("meta").permutation.is_meta


def test_to_quantized_weight_is_the_inverse(parts):
    linear = mixed_gemm.Linear.from_quantized(**parts)
    weight = linear.to_quantized_weight("layer")
    assert weight.name == "layer"
    for name in ("q", "scales", "zeros", "bias", "pre_scale", "permutation"):
        assert torch.equal(getattr(weight, name), parts[name]), name
    again = weight.to_linear()
    a = torch.randn(3, K)
    assert torch.equal(again(a), linear(a))


def test_float8_is_kept_and_made_integers_where_asked():
    weight = mixed_gemm.formats.QuantizedWeight(
        "x", torch.zeros(N, K).to(torch.float8_e4m3fn), torch.ones(1, N), bits=8
    )
    assert weight.to_linear().weight.kind == "fp8_weight_only"
    assert weight.requantize(4, 32).to_linear().bits == 4
