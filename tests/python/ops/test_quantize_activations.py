"""The quantizers of activations on the CPU, bit for bit against the oracle."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import mixed_gemm
from mixed_gemm import reference
from mixed_gemm.ops.problem import DTYPES
from mixed_gemm.reference import scaled as reference_scaled

SPECIAL = (0.0, -0.0, 1e-45, 1e-38, 65504.0, math.inf, -math.inf, math.nan)


def same(x: torch.Tensor | None, y: torch.Tensor | None) -> bool:
    return (x is None and y is None) or torch.equal(
        x.nan_to_num(-7.0) if x.is_floating_point() else x,  # type: ignore[union-attr]
        y.nan_to_num(-7.0) if y.is_floating_point() else y,  # type: ignore[union-attr]
    )


rows = st.lists(
    st.one_of(st.floats(width=32, allow_nan=False), st.sampled_from(SPECIAL)),
    min_size=1,
    max_size=40,
)


@given(rows, st.sampled_from(DTYPES), st.booleans())
def test_per_token_equals_the_oracle_on_anything(
    row: list[float], dtype: torch.dtype, symmetric: bool
) -> None:
    a = torch.tensor([row]).to(dtype)
    expected = reference_scaled.quantize_per_token(a, symmetric=symmetric)
    assert all(map(same, mixed_gemm.quantize_per_token(a, symmetric=symmetric), expected))


@given(
    rows,
    st.sampled_from(DTYPES),
    st.floats(min_value=2.0**-100, max_value=2.0**100, width=32),
    st.one_of(st.none(), st.integers(-300, 300)),
)
def test_per_tensor_equals_the_oracle_on_anything(
    row: list[float], dtype: torch.dtype, step: float, point: int | None
) -> None:
    a = torch.tensor([row]).to(dtype)
    scale = torch.tensor(step)
    azp = None if point is None else torch.tensor(point, dtype=torch.int32)
    expected = reference_scaled.quantize_per_tensor(a, scale, azp)
    assert torch.equal(mixed_gemm.quantize_per_tensor(a, scale, azp), expected)


@pytest.mark.parametrize("azp", (2**22, -(2**22), 2**22 + 100, -(2**23), 2**31 - 1, -(2**31)))
def test_huge_zero_points_count_as_the_largest(azp: int) -> None:
    """Near -azp, where int32 or fp32 arithmetic without the limit would give something else."""
    limit = max(-(2**22), min(2**22, azp))
    steps = torch.arange(-200, 200)
    a = torch.stack([steps - limit, steps - azp]).float()
    point = torch.tensor(azp, dtype=torch.int32)
    found = mixed_gemm.quantize_per_tensor(a, torch.tensor(1.0), point)
    assert torch.equal(found[0].long(), steps.clamp(-128, 127))
    assert torch.equal(found, reference_scaled.quantize_per_tensor(a, torch.tensor(1.0), point))


def test_zero_rows_divide_by_nothing() -> None:
    for symmetric in (True, False):
        q, scale, azp = mixed_gemm.quantize_per_token(torch.zeros(3, 20), symmetric=symmetric)
        assert (scale > 0).all() and scale.isfinite().all()
        assert torch.equal(q, torch.full_like(q, 0 if symmetric else -128))
        assert azp is None or (azp == -128).all()  # so that q - azp is 0


@pytest.mark.parametrize("bad", (math.nan, math.inf, -math.inf))
@pytest.mark.parametrize("symmetric", (True, False))
def test_a_row_with_nan_or_infinity_gives_nan_and_no_other_row_does(
    bad: float, symmetric: bool
) -> None:
    a = torch.randn(4, 50)
    a[1, 7] = bad
    q, scale, azp = mixed_gemm.quantize_per_token(a, symmetric=symmetric)
    assert not scale[1].isfinite() and (q[1] == 0).all()
    w = torch.randint(-128, 128, (6, 50), dtype=torch.int8)
    if azp is None:
        out = mixed_gemm.scaled_mm(q, w.t(), scale, torch.ones(1), out_dtype=torch.float32)
    else:
        adjustment = mixed_gemm.ops.azp_adjustment(w)
        out = mixed_gemm.scaled_mm_azp(
            q, w.t(), scale, torch.ones(1), adjustment, azp, out_dtype=torch.float32
        )
    assert out[1].isnan().all()
    assert out[[0, 2, 3]].isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("low, high", ((5, 6), (-6, -5), (0, 1), (-1, 0), (256, 1280), (-2, 3)))
def test_rows_have_the_steps_of_their_own_range(low: int, high: int, dtype: torch.dtype) -> None:
    """Of one sign, too: low and high become -128 and 127."""
    a = (low + (high - low) * torch.rand(5, 400)).to(dtype)
    a[:, 7], a[:, 8] = low, high
    q, scale, azp = mixed_gemm.quantize_per_token(a, symmetric=False)
    assert azp is not None
    step = torch.tensor((high - low) / 255)
    assert torch.equal(scale, step.expand(5, 1))
    assert torch.equal(azp, (-128 - (low / step).round()).int().expand(5, 1))
    assert (q[:, 7] == -128).all() and (q[:, 8] >= 126).all()
    assert ((scale * (q - azp) - a.float()).abs() <= 0.5001 * scale).all()


def restored(row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(scale * (q - azp), scale, the bound of problem/quantize.h) of each row, in float64."""
    q, scale, azp = mixed_gemm.quantize_per_token(row, symmetric=False)
    assert azp is not None and int(azp.abs().max()) <= 2**21 + 128
    step, largest = scale.double(), row.double().abs().amax(-1, keepdim=True)
    bound = step * (0.5 + 2.0**-23 * largest / step + 2.0**-14)
    assert (bound <= 0.7501 * step).all()
    return step * (q.double() - azp.double()), scale, bound


@pytest.mark.parametrize("value", (5.0, -7.3, 1e-3, -6e4, 2.0**-105, 3e38, 1e-30, 1.0))
@pytest.mark.parametrize("k", (1, 5, 16, 100))
def test_constant_rows_come_back_exactly(value: float, k: int) -> None:
    for dtype in DTYPES:
        row = torch.full((2, k), value).to(dtype)
        if row.isfinite().all() and (row == 0).sum() == 0:
            back, _, _ = restored(row)
            assert torch.equal(back, row.double())


@pytest.mark.parametrize("offset", (0.0, 1.0, -300.0, 1e4, -1e4, 1e9, 1e37, -1e-20))
@pytest.mark.parametrize("width", (0.0, 1e-45, 1e-40, 1e-12, 1e-3, 0.5, 40.0, 1e38))
def test_rows_far_from_zero_are_within_the_bound(offset: float, width: float) -> None:
    """From rows whose own step fp32 cannot tell from 0 to rows whose range overflows it."""
    row = offset + width * torch.cat([torch.rand(4, 50) - 0.3, torch.tensor([[0.0, 1.0]] * 4)], 1)
    back, scale, bound = restored(row)
    assert ((back - row.double()).abs() <= bound).all()
    step = (row.double().amax(-1) - row.double().amin(-1)) / 255
    least = torch.maximum(row.double().abs().amax(-1) / 2**21, torch.tensor(2.0**-126))
    assert torch.allclose(scale.double()[:, 0], torch.maximum(step, least), rtol=2.0**-22, atol=0)


def test_a_range_that_overflows_has_a_finite_scale() -> None:
    row = torch.tensor([[-3e38, 0.0, 3e38], [3.4e38, 3.4e38, -3.4e38]])
    back, scale, bound = restored(row)
    assert scale.isfinite().all() and ((back - row.double()).abs() <= bound).all()


@pytest.mark.parametrize("bad", (math.inf, -math.inf, math.nan))
@pytest.mark.parametrize("k", (1, 7, 16, 33))
def test_rows_of_nothing_but_infinity_have_an_infinite_scale(bad: float, k: int) -> None:
    """Whose range is NaN."""
    for symmetric in (True, False):
        q, scale, azp = mixed_gemm.quantize_per_token(torch.full((2, k), bad), symmetric=symmetric)
        assert (scale.isnan() if math.isnan(bad) else scale == math.inf).all()
        assert (q == 0).all() and (azp is None or (azp == 0).all())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_products_of_rows_far_from_zero_are_within_the_bound(dtype: torch.dtype) -> None:
    """Where 32 bits hold neither azp * azp_adj nor the difference."""
    k = 4096
    offset = torch.tensor([1e4, -1e4, 5.0, -300.0, 0.0, 6e4])[:, None]
    width = torch.tensor([1e-3, 0.1, 1.0, 8.0, 0.0, 0.0])[:, None]
    a = (offset + width * torch.rand(6, k)).to(dtype)
    weight = torch.randint(-128, 128, (9, k), dtype=torch.int8)
    weight[0], weight[1] = 127, -128
    scale_b, sums = torch.rand(9) * 1e-6, mixed_gemm.ops.azp_adjustment(weight)
    q, scale, azp = mixed_gemm.quantize_per_token(a, symmetric=False)
    assert azp is not None and (azp.long() * sums.long()).abs().max() > 2**31
    given = (q, weight.t(), scale, scale_b)
    out = mixed_gemm.scaled_mm_azp(*given, sums, azp, out_dtype=dtype)
    exact = reference_scaled.scaled_mm(*given, azp_adj=sums, azp=azp)
    bound = reference_scaled.error_bound(*given, out_dtype=dtype, azp_adj=sums, azp=azp)
    assert reference.error_ratio(out, exact, bound) <= 1
    assert torch.equal(out, mixed_gemm.scaled_mm_dynamic(a, weight.t(), scale_b, sums))
    # And what rounding the rows costs: each element by the bound of the quantizer.
    _, _, of_rows = restored(a)
    dense = a.double() @ (weight.double() * scale_b.double()[:, None]).t()
    moved = of_rows * (weight.double() * scale_b.double()[:, None]).abs().sum(1)
    assert ((out.double() - dense).abs() <= moved + 1.01 * bound).all()


@given(rows, st.sampled_from(DTYPES))
def test_every_finite_row_is_within_the_bound(row: list[float], dtype: torch.dtype) -> None:
    a = torch.tensor([row]).to(dtype)
    if a.isfinite().all():
        back, _, bound = restored(a)
        assert ((back - a.double()).abs() <= bound).all()


# --- to float8 -----------------------------------------------------------------------------------


def same_codes(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Bit for bit, but for the sign of NaN."""
    a, b = x.view(torch.uint8), y.view(torch.uint8)
    return x.shape == y.shape and bool(((a == b) | ((a & b & 127) == 127)).all())


def equals_float8(a: torch.Tensor, size: int | None) -> bool:
    q, scale = mixed_gemm.quantize_fp8(a, block_size=size)
    expected = reference_scaled.quantize_fp8(a, block_size=size)
    return same_codes(q, expected[0]) and same(scale, expected[1])


@given(rows, st.sampled_from(DTYPES), st.sampled_from((None, 1, 3, 16)))
def test_float8_equals_the_oracle_on_anything(
    row: list[float], dtype: torch.dtype, size: int | None
) -> None:
    assert equals_float8(torch.tensor([row]).to(dtype), size)
    assert equals_float8(torch.tensor([row, row]).to(dtype).t(), size), "strided"


def test_float8_codes_are_those_of_the_cast_of_torch() -> None:
    """Every bfloat16 between -448 and 448, whose scale is 1 beside a 448."""
    every = torch.arange(1 << 16, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16)
    every = every[every.abs() <= 448]
    q, scale = mixed_gemm.quantize_fp8(torch.cat((every, torch.tensor([448.0]).bfloat16())))
    assert scale.item() == 1 and same_codes(q[:-1], every.to(torch.float8_e4m3fn))


def test_float8_of_nan_infinity_and_zero() -> None:
    a = torch.tensor([[math.nan, 1, 2], [math.inf, 1, -math.inf], [0.0, -0.0, 0.0], [1e-45, 0, 0]])
    q, scale = mixed_gemm.quantize_fp8(a)
    assert q[0].float().isnan().all() and scale[0].isnan()
    assert q[1].float().isnan().tolist() == [True, False, True] and scale[1].isinf()
    assert q[2].view(torch.uint8).tolist() == [0, 0x80, 0] and scale[2] == 2.0**-126
    assert scale[3] == 2.0**-126 and (q[3].float() == 0).all()
    assert mixed_gemm.quantize_fp8(torch.ones(3, 0), block_size=4)[1].shape == (3, 0)
    assert mixed_gemm.quantize_fp8(torch.ones(3, 0))[1].shape == (3, 1)
