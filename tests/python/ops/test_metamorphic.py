"""What must hold between two calls: permuted, negated, scaled and split problems of any values.
The bits are equal where one order of sums serves both; else both must fit one bound.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import gemm, registry, verdict
from problems.conv import ConvCase
from problems.gemm import Case, Problem
from torch import Tensor

import mixed_gemm

few = settings(max_examples=12)
seeds = st.integers(0, 10_000)
FLOATS = (torch.float16, torch.bfloat16, torch.float32)
PLAIN = {f"{name}_place": ("alone",) for name in ("a", "b", "scales", "zeros", "vectors")}


def gemm_problem(seed: int, **fixed: tuple[Any, ...]) -> Problem:
    """A random one that has rows and columns."""
    fixed = {"m": (1, 2, 5, 9, 33, 70), "k": gemm.DEPTHS[1:], "lead": ("2d",), **PLAIN, **fixed}
    case = registry.OPS["fpA_intB_gemm"].draw(random.Random(seed), 1 << 20, **fixed)
    return registry.make(case)


def call(p: Problem, **changes: Any) -> Tensor:
    """The op on the tensors of ``p``, some of them others."""
    given_ = {name: getattr(p, name) for name in ("a", "scales", "zeros", "bias", "pre_scale")}
    options = {"bits": p.case.bits, "activation": p.case.activation, **p.scheme()}
    packed = changes.pop("b_packed", p.b_packed)
    return mixed_gemm.fpA_intB_gemm(b_packed=packed, **{**given_, **options, **changes})


def one_bound(p: Problem, *outs: Tensor) -> None:
    for out in outs:
        assert float(verdict.worst(out, p.oracle())) <= 1


# --- the same bits ------------------------------------------------------------------------------


@few
@given(seeds)
def test_permuted_rows_permute_the_output(seed: int) -> None:
    """Within the bound: the last rows of a call may have kernels of their own."""
    p = gemm_problem(seed)
    order = torch.randperm(p.case.m)
    one_bound(p, call(p), call(p, a=p.a[order])[order.argsort()])


@few
@given(seeds)
def test_equal_rows_give_equal_rows(seed: int) -> None:
    p = gemm_problem(seed)
    out = call(p, a=p.a[:1].repeat(p.case.m, 1))
    assert torch.equal(out, out[:1].expand_as(out))


@few
@given(seeds)
def test_permuted_blocks_of_columns_permute_the_output(seed: int) -> None:
    p = gemm_problem(seed, n=(64, 128, 192, 320))
    blocks = torch.randperm(p.case.n // 64)
    order = (blocks[:, None] * 64 + torch.arange(64)).flatten()
    columns = {
        name: None if getattr(p, name) is None else getattr(p, name)[..., order]
        for name in ("scales", "zeros", "bias")
    }
    assert torch.equal(call(p, b_packed=p.b_packed[order], **columns), call(p)[:, order])


@few
@given(seeds)
def test_a_slice_of_the_packed_weight_is_a_slice_of_the_output(seed: int) -> None:
    p = gemm_problem(seed, n=(65, 128, 129, 200, 264))
    whole = call(p)
    for columns in (slice(0, 64), slice(64, None)):
        rest = {
            name: None if getattr(p, name) is None else getattr(p, name)[..., columns]
            for name in ("scales", "zeros", "bias")
        }
        assert torch.equal(call(p, b_packed=p.b_packed[columns], **rest), whole[:, columns])


@few
@given(seeds)
def test_negated_activations_negate_the_output(seed: int) -> None:
    p = gemm_problem(seed, bias=(False,), activation=("identity",))
    assert torch.equal(call(p, a=-p.a), -call(p))


@few
@given(seeds, st.integers(-3, 3))
def test_scales_times_a_power_of_two_multiply_the_output(seed: int, power: int) -> None:
    modes = tuple(s for s in gemm.SCHEMES if s[1] in ("none", "sub", "sub_real"))
    fixed = {"dtype": (torch.float32, torch.bfloat16), "scheme": modes}
    p = gemm_problem(seed, bias=(False,), activation=("identity",), **fixed)
    assert torch.equal(call(p, scales=p.scales * 2.0**power), call(p) * 2.0**power)


@few
@given(seeds)
def test_one_group_is_a_group_of_all_of_k(seed: int) -> None:
    schemes = tuple(s for s in gemm.SCHEMES if s[0] == -1)
    p = gemm_problem(seed, k=(16, 64, 80, 128, 256, 512, 1008), scheme=schemes)
    assert torch.equal(call(p, group_size=p.case.k), call(p))


@few
@given(seeds)
def test_leading_dimensions_and_views_change_nothing(seed: int) -> None:
    p = gemm_problem(seed, m=(6, 30, 70))
    expected = call(p)
    assert torch.equal(call(p, a=p.a.view(2, -1, p.case.k)).flatten(0, 1), expected)
    wide = torch.full((p.case.m, p.case.k + 9), torch.nan, dtype=p.a.dtype)
    wide[:, 5:-4] = p.a
    assert torch.equal(call(p, a=wide[:, 5:-4]), expected)
    assert torch.equal(call(p), expected)


# --- one bound for both -------------------------------------------------------------------------


@few
@given(seeds)
def test_groups_split_in_two_with_their_scales_repeated(seed: int) -> None:
    schemes = tuple(s for s in gemm.SCHEMES if s[0] in (32, 64, 96, 128, 256))
    p = gemm_problem(seed, scheme=schemes, k=(256, 320, 512, 513, 640, 777, 1024))
    groups = -(-p.case.k // (p.case.group_size // 2))
    rows = {
        name: None if x is None else x.repeat_interleave(2, 0)[:groups].contiguous()
        for name, x in (("scales", p.scales), ("zeros", p.zeros))
    }
    one_bound(p, call(p), call(p, group_size=p.case.group_size // 2, **rows))


@few
@given(seeds)
def test_zero_points_of_zero_change_nothing(seed: int) -> None:
    schemes = tuple(s for s in gemm.SCHEMES if s[1] == "none")
    p = gemm_problem(seed, scheme=schemes)
    zeros = torch.zeros_like(p.scales)
    one_bound(p, *(call(p, zeros=zeros, zero_mode=mode) for mode in ("sub", "add")))


@few
@given(seeds)
def test_four_bits_are_eight_bits_of_the_same_integers(seed: int) -> None:
    p = gemm_problem(seed, bits=(4,))
    one_bound(p, call(p, bits=8, b_packed=mixed_gemm.pack_weights(p.q, 8)))


@few
@given(seeds)
def test_another_group_of_zero_scales_adds_nothing(seed: int) -> None:
    p = gemm_problem(seed, k=(64, 128, 256), scheme=((64, "none"), (64, "sub")), pre_scale=(False,))
    a = torch.cat((p.a, torch.randn(p.case.m, 64).to(p.a.dtype)), 1)
    q = torch.cat((p.q, torch.randint(-8, 8, (p.case.n, 64), dtype=torch.int8)), 1)
    longer = {
        name: None if x is None else torch.cat((x, torch.zeros_like(x[:1])))
        for name, x in (("scales", p.scales), ("zeros", p.zeros))
    }
    one_bound(p, call(p, a=a, b_packed=mixed_gemm.pack_weights(q, p.case.bits), **longer))


@few
@given(seeds)
def test_the_product_is_that_of_the_dequantized_weight(seed: int) -> None:
    p = gemm_problem(seed, dtype=(torch.float32,), pre_scale=(False,), activation=("identity",))
    n, k = p.case.n, p.case.k
    options = {"bits": p.case.bits, **p.scheme()}
    w = mixed_gemm.dequantize_weights(p.b_packed, p.scales, p.zeros, n=n, k=k, **options)
    out = p.a.double() @ w.double().t()
    out = out if p.bias is None else out + p.bias.double()
    one_bound(p, out.float(), call(p))


@few
@given(seeds, st.sampled_from(FLOATS))
def test_a_pointwise_convolution_is_the_product_of_its_pixels(
    seed: int, dtype: torch.dtype
) -> None:
    rng = random.Random(seed)
    in_c = rng.choice((8, 16, 32, 64, 128, 192))  # K of the packed filter has no gaps
    case = ConvCase(2, in_c, 40, (5, 3), (1, 1), padding=(0, 0), dtype=dtype, bits=4, bias=True)
    p = registry.make(case)
    pixels = p.input.permute(0, 2, 3, 1)
    q = p.q[:, :, 0, 0]
    packed = mixed_gemm.pack_weights(q, 4)
    out = mixed_gemm.fpA_intB_gemm(pixels, packed, p.scales, bias=p.bias, bits=4)
    assert float(p.verdict(out.permute(0, 3, 1, 2))) <= 1
    assert float(p.verdict(p.run())) <= 1


@pytest.mark.parametrize("op", ("scaled_mm", "awq", "block_quant_gemm", "quantize"))
@settings(max_examples=6)
@given(seeds)
def test_permuted_rows_permute_the_output_of_every_product(op: str, seed: int) -> None:
    table = registry.OPS[op]
    fixed: dict[str, tuple[Any, ...]] = {"m": (2, 9, 33), "lead": ("2d",), "a_place": ("alone",)}
    if op == "scaled_mm":
        fixed["vectors_place"] = ("alone",)
    if op == "awq":
        fixed["op"] = ("gemm",)
    p = registry.make(table.draw(random.Random(seed), 1 << 18, **fixed))
    order = torch.randperm(p.case.m)
    rows = {"a": p.a[order]}
    for name in ("scale_a", "azp"):  # of each row, where they are
        x = getattr(p, name, None)
        if x is not None and x.dim() == 2:
            rows[name] = x[order]
    permuted = replace(p, **rows)
    before, after = p.run(), permuted.run()
    if op == "awq":  # as of fpA_intB_gemm, whose kernels run it on the CPU
        assert float(p.verdict(before)) <= 1 and float(permuted.verdict(after)) <= 1
        return
    pairs = zip(before, after, strict=True) if isinstance(before, tuple) else [(before, after)]
    assert all(x is None or torch.equal(x[order], y) for x, y in pairs)


@few
@given(seeds)
def test_a_zero_point_is_a_shift_of_the_activations(seed: int) -> None:
    """a @ b - azp * sum(b) is (a - azp) @ b: exact integers, so one rounding of each."""
    rng = random.Random(seed)
    m, n, k = rng.choice((1, 5, 40)), rng.choice((3, 40, 70)), rng.choice((7, 64, 200))
    g = torch.Generator().manual_seed(seed)
    a = torch.randint(-60, 60, (m, k), generator=g, dtype=torch.int8)
    weight = torch.randint(-128, 128, (n, k), generator=g, dtype=torch.int8)
    azp = torch.randint(-60, 60, (m, 1), generator=g, dtype=torch.int32)
    one = torch.ones(1)
    shifted = (a - azp).to(torch.int8)
    assert torch.equal(shifted.int(), a - azp), "the difference must fit"
    adjustment = mixed_gemm.ops.azp_adjustment(weight)
    out = mixed_gemm.scaled_mm_azp(
        a, weight.t(), one, one, adjustment, azp, out_dtype=torch.float32
    )
    expected = mixed_gemm.scaled_mm(shifted, weight.t(), one, one, out_dtype=torch.float32)
    assert torch.equal(out, expected)


def test_case_of_the_defaults_is_plain() -> None:
    """The relations above rely on it: no place but the plain one unless asked for."""
    assert all(getattr(Case(), name) == "alone" for name in PLAIN)
