"""block_quant_gemm: its rounding of the activations bit for bit, its product under the bound of
reference_conv.block_error_bound."""

from __future__ import annotations

import math

import pytest
import torch
from problems.block import BlockCase, make
from support.block_rows import ROWS, read_back, rounded

import mixed_gemm
from mixed_gemm.reference import conv as reference_conv


@pytest.mark.parametrize("block_size", [-1, 16, 48])
@pytest.mark.parametrize("rows", ROWS)
def test_activations_are_rounded_by_the_formula_bit_for_bit(rows: str, block_size: int) -> None:
    a = ROWS[rows]()
    assert torch.equal(read_back(a, block_size), rounded(a, block_size))


@pytest.mark.parametrize("rows", [x for x in ROWS if x != "huge"])
def test_activations_are_within_half_a_step(rows: str) -> None:
    a = ROWS[rows]()
    _, scale, _ = reference_conv.block_quantize(a, 48)
    step = scale.double().repeat_interleave(48, dim=-1)[..., :100]
    # Half a step; and the fp32 roundings of offset and range, of numbers as large as a.
    room = 0.5 * step + 4 * 2.0**-24 * a.double().abs().amax(-1, keepdim=True) * 256 / 127
    assert ((rounded(a, 48).double() - a.double()).abs() <= room * (1 + 2.0**-10)).all()


@pytest.mark.parametrize("value", [0.0, 1.0, -7.25, 1e30, 2.0**-95])
def test_a_block_of_equal_values_is_exact(value: float) -> None:
    a = torch.full((2, 32), value)
    assert torch.equal(read_back(a, 16), a)


def test_block_gemm_integer_lattice_is_exact() -> None:
    # Each block of a spans -128..127, so that its scale is 1 and its offset 0.
    for dtype in (torch.float16, torch.float32):
        a = torch.randint(-128, 128, (7, 96)).to(dtype)
        a[:, 0::32], a[:, 1::32] = -128, 127
        weight = torch.randint(-128, 128, (33, 96), dtype=torch.int8)
        scale = torch.full((3, 33), 2.0**-7, dtype=dtype)
        offset = torch.randint(-8, 9, (3, 33)).to(dtype)
        q, scale_a, offset_a = reference_conv.block_quantize(a, 32)
        assert torch.equal(q.to(dtype), a)
        assert (scale_a == 1).all() and (offset_a == 0).all()
        out = mixed_gemm.block_quant_gemm(a, weight.t(), scale, offset, block_size=32)
        wide = (x.double().repeat_interleave(32, dim=0) for x in (scale, offset))
        scales, offsets = wide
        exact = a.double() @ (weight.t().double() * scales + offsets)
        assert torch.equal(out, exact.to(dtype))


def test_block_gemm_is_near_the_product_of_the_activations_themselves() -> None:
    p = make(BlockCase(m=16, n=64, k=512, dtype=torch.float32, block_size=64, bias=False))
    _, scale, _ = reference_conv.block_quantize(p.a, 64)
    wide = (x.double().repeat_interleave(64, dim=0) for x in (p.scale_b, p.offset_b))
    scales, offsets = wide
    w = p.weight.t().double() * scales + offsets
    near = p.a.double() @ w
    # Half a step of every element: at most, and in practice a tenth of that.
    most = 0.5 * scale.double().repeat_interleave(64, dim=-1) @ w.abs()
    error = (p.run().double() - near).abs()
    assert (error <= most * (1 + 1e-3)).all()
    assert error.max() < 0.25 * most.max()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_row_that_is_not_finite_becomes_nan_and_no_other(value: float) -> None:
    p = make(BlockCase(m=5))
    p.a[3, 70] = value
    assert torch.equal(p.run().isnan().any(1), torch.arange(5) == 3)
    assert p.run()[3].isnan().all()


def test_row_does_not_depend_on_the_others() -> None:
    p = make(BlockCase(m=130, n=70, dtype=torch.float32))
    whole = p.run()
    for row in (0, 1, 63, 64, 129):
        assert torch.equal(p.run(p.a[row : row + 1])[0], whole[row])
