"""scaled_mm_dynamic on the CPU: the bits of the two calls it stands for, however threads share the
work. test_problems.py has it over arrays of cases, test_numerics.py with numbers of threads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from problems.scaled_dynamic import ScaledDynamicCase, ScaledDynamicProblem, make
from problems.verdict import exact
from torch import Tensor, func
from torch.utils.flop_counter import FlopCounterMode

import mixed_gemm
from mixed_gemm.ops import azp_adjustment

CASE = ScaledDynamicCase(m=6, n=50, k=130, azp=True, bias=True)
# Rows of K = 1024 up to which every thread rounds all of them (csrc/cpu/scaled_mm).
ROWS_OF_ALL = 64


def equal(x: Tensor, y: Tensor) -> bool:
    """Bit for bit, any NaN being equal to any other."""
    return float(exact(x, y)) == 0


def call(p: ScaledDynamicProblem, **changes: Any) -> Tensor:
    given = {"a": p.a, "b": p.weight.t(), "scale_b": p.scale_b, "azp_adj": p.azp_adj}
    return mixed_gemm.scaled_mm_dynamic(**{**given, "bias": p.bias, **changes})


@pytest.mark.parametrize("azp", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_row_has_the_same_bits_however_rows_are_shared_out(dtype: torch.dtype, azp: bool) -> None:
    p = make(ScaledDynamicCase(2 * ROWS_OF_ALL + 1, 70, 1024, dtype, azp=azp, spoiled="nan"))
    whole = call(p)
    assert equal(whole, p.two_calls())
    for m in (1, 3, 4, 5, 16, 17, ROWS_OF_ALL - 1, ROWS_OF_ALL, ROWS_OF_ALL + 1):
        assert equal(call(p, a=p.a[-m:]), whole[-m:]), m


@pytest.mark.parametrize("adjustment", [2**31 - 1, -(2**31), 1 << 24, 0])
def test_zero_points_do_not_wrap(adjustment: int) -> None:
    p = make(CASE)
    assert p.azp_adj is not None
    p.azp_adj.fill_(adjustment)
    assert torch.equal(call(p), p.two_calls())


def test_the_comparison_sees_another_zero_point_and_another_bias() -> None:
    p = make(CASE)
    assert p.azp_adj is not None and p.bias is not None
    assert float(p.verdict(call(p))) <= 1
    for changes in ({"azp_adj": p.azp_adj + 8}, {"azp_adj": None}, {"bias": None}):
        assert not float(p.verdict(call(p, **changes))) <= 1, changes
    assert not float(p.verdict(call(p).roll(1, 0))) <= 1


def test_forms_of_columns_agree() -> None:
    p = make(CASE)
    assert p.azp_adj is not None
    expected = call(p)
    assert torch.equal(call(p, scale_b=p.scale_b[None], azp_adj=p.azp_adj[None]), expected)
    one = p.scale_b[:1]
    for scale in (one[0], one, one[None]):
        assert torch.equal(call(p, scale_b=scale), call(p, scale_b=one.expand(50)))


def test_vmap_takes_a_batch_of_rows_and_of_biases() -> None:
    p = make(replace(CASE, dtype=torch.float32))
    assert p.bias is not None
    batch, biases = torch.randn(3, 2, 130), torch.randn(3, 50)
    got = func.vmap(lambda a, bias: call(p, a=a, bias=bias))(batch, biases)
    loop = [call(p, a=a, bias=bias) for a, bias in zip(batch, biases, strict=True)]
    assert torch.equal(got, torch.stack(loop))
    got = func.vmap(lambda a: call(p, a=a), in_dims=1)(batch)
    assert torch.equal(got, torch.stack([call(p, a=batch[:, i]) for i in range(2)]))


def test_autocast_leaves_the_rows_as_they_are() -> None:
    p = make(replace(CASE, dtype=torch.float32))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(call(p), p.two_calls())


def test_flops_are_those_of_the_gemm() -> None:
    with FlopCounterMode(display=False) as counter:
        call(make(CASE))
    assert counter.get_total_flops() == 2 * 6 * 50 * 130


def test_bias_has_a_gradient_and_activations_are_pointed_to_the_layer() -> None:
    p = make(replace(CASE, dtype=torch.float32))
    assert p.bias is not None
    p.bias.requires_grad_()
    call(p).square().sum().backward()
    assert torch.equal(p.bias.grad, 2 * call(p).detach().sum(0))
    with pytest.raises(RuntimeError, match=r"a requires grad, but .*Linear\(scheme='w8a8'\)"):
        call(p, a=p.a.requires_grad_())


def test_the_layer_gives_the_bits_of_the_op() -> None:
    for activations in ("dynamic", "dynamic_azp"):
        torch.manual_seed(0)
        dense = torch.nn.Linear(96, 40)
        scheme = mixed_gemm.Scheme.w8a8(activations)
        module = mixed_gemm.Linear.from_float(dense, scheme)
        x, weight = torch.randn(7, 96), module.weight
        sums = azp_adjustment(weight.weight_int8) if activations == "dynamic_azp" else None
        given = (weight.weight_int8.t(), weight.weight_scale, sums, module.bias)
        with torch.no_grad():
            assert torch.equal(module(x), mixed_gemm.scaled_mm_dynamic(x, *given))
