"""scaled_mm and scaled_mm_azp on the CPU: integers bit for bit, epilogues within the bound."""

from __future__ import annotations

import pytest
import torch
from problems.registry import OPS
from problems.scaled import ScaledCase, make
from torch.utils.flop_counter import FlopCounterMode

import mixed_gemm
from mixed_gemm.reference import scaled as reference_scaled

FP8 = torch.float8_e4m3fn
ONE = torch.ones(1)
# Only the sizes turn: every two of them meet.
SIZES = {
    name: (value,) for name, value in vars(ScaledCase()).items() if name not in ("m", "n", "k")
}


@pytest.mark.parametrize("part", range(4))
def test_int8_sums_equal_int64(part: int) -> None:
    cases = [*OPS["scaled_mm"].pairs(**SIZES), ScaledCase(130, 257, 1000)][part::4]
    assert len(cases) > 100
    for case in cases:
        problem = make(case)
        exact = problem.a.long() @ problem.b.long()
        out = problem.run(scale_a=ONE, scale_b=ONE, out_dtype=torch.float32)
        assert torch.equal(out, exact.float()), case


def test_bound_sees_a_wrong_element() -> None:
    problem = make(ScaledCase(bias=True, azp="per_row"))
    out = problem.run()
    assert problem.azp_adj is not None
    off_by_one = problem.run(azp_adj=problem.azp_adj + 8)
    assert problem.ratio(off_by_one) > 1
    assert problem.ratio(out.roll(1, 1)) > 1


@pytest.mark.parametrize("a, b", ((-128, -128), (-128, 127), (127, 127)))
def test_int8_of_the_largest_k_does_not_wrap(a: int, b: int) -> None:
    k = 131071
    rows = torch.full((2, k), a, dtype=torch.int8)
    columns = torch.full((3, k), b, dtype=torch.int8)
    out = mixed_gemm.scaled_mm(rows, columns.t(), ONE, ONE, out_dtype=torch.float32)
    assert torch.equal(out, torch.full((2, 3), float(a * b * k)))
    with pytest.raises(RuntimeError, match=r"K must be at most 131071 for int8.*got K=131072"):
        mixed_gemm.scaled_mm(
            torch.zeros(1, k + 1, dtype=torch.int8),
            torch.zeros(1, k + 1, dtype=torch.int8).t(),
            ONE,
            ONE,
            out_dtype=torch.float32,
        )


@pytest.mark.parametrize("azp", (2**31 - 1, -(2**31), 70_000, 1))
def test_zero_points_do_not_wrap(azp: int) -> None:
    a, w = (torch.full((2, 64), x, dtype=torch.int8) for x in (-128, 127))
    points = torch.full((2, 1), azp, dtype=torch.int32)
    out = mixed_gemm.scaled_mm_azp(
        a, w.t(), ONE, ONE, mixed_gemm.ops.azp_adjustment(w), points, out_dtype=torch.float32
    )
    exact = 64 * 127 * (-128 - azp)
    assert torch.equal(out.long(), torch.full((2, 2), float(exact)).long())
    folded = torch.tensor([azp, -azp - 1], dtype=torch.int32)
    out = mixed_gemm.scaled_mm_azp(a, w.t(), ONE, ONE, folded, out_dtype=torch.float32)
    expected = (torch.tensor([-128 * 127 * 64] * 2) - folded.long()).float()
    assert torch.equal(out, expected.expand(2, -1))


def test_zero_point_equals_shifted_operand() -> None:
    """(q - azp) @ w from int64: what the epilogue stands for."""
    problem = make(ScaledCase(azp="per_row", out_dtype=torch.float32))
    assert problem.azp is not None
    shifted = (problem.a.long() - problem.azp) @ problem.b.long()
    assert torch.equal(problem.run(scale_a=ONE, scale_b=ONE), shifted.float())


def test_one_row_and_expanded_rows() -> None:
    problem = make(ScaledCase(m=4, row_scales=False))
    row = problem.run(problem.a[0])
    assert row.shape == (40,)
    assert torch.equal(row, problem.run()[0])
    assert torch.equal(problem.run(problem.a[:1].expand(3, -1)), row.expand(3, -1))
    assert torch.equal(problem.run(torch.stack([problem.a[0]] * 2, 1)[:, 0]), row)


@pytest.mark.parametrize("shape", ((5,), (5, 1)))
def test_forms_of_row_scales_agree(shape: tuple[int, ...]) -> None:
    problem = make(ScaledCase(azp="per_row"))
    assert problem.azp is not None
    forms = {"scale_a": problem.scale_a.view(shape), "azp": problem.azp.view(shape)}
    assert torch.equal(problem.run(**forms), problem.run())


@pytest.mark.parametrize("shape", ((40,), (1, 40)))
def test_forms_of_column_scales_agree(shape: tuple[int, ...]) -> None:
    problem = make(ScaledCase(azp="per_row"))
    assert problem.azp_adj is not None
    forms = {"scale_b": problem.scale_b.view(shape), "azp_adj": problem.azp_adj.view(shape)}
    assert torch.equal(problem.run(**forms), problem.run())


@pytest.mark.parametrize("shape", ((), (1,), (1, 1)))
def test_forms_of_one_scale_agree(shape: tuple[int, ...]) -> None:
    problem = make(ScaledCase(row_scales=False, column_scales=False))
    forms = {name: getattr(problem, name).view(shape) for name in ("scale_a", "scale_b")}
    assert torch.equal(problem.run(**forms), problem.run())


def test_float8_nan_spoils_its_row_only() -> None:
    problem = make(ScaledCase(operand=FP8, out_dtype=torch.float32))
    whole = problem.run()
    a = problem.a.clone()
    a[2, 3] = float("nan")
    out = problem.run(a)
    assert out[2].isnan().all()
    keep = torch.arange(5) != 2
    assert torch.equal(out[keep], whole[keep])


def test_nan_scale_spoils_its_row_only() -> None:
    problem = make(ScaledCase(bias=True))
    scale = problem.scale_a.clone()
    scale[1] = float("nan")
    out = problem.run(scale_a=scale)
    assert out.isnan().sum(1).tolist() == [0, 40, 0, 0, 0]


def test_azp_adjustment() -> None:
    w = torch.randint(-128, 128, (7, 300), dtype=torch.int8)
    assert torch.equal(mixed_gemm.ops.azp_adjustment(w), w.long().sum(1).int())
    assert torch.equal(mixed_gemm.ops.azp_adjustment(w, -5), -5 * w.long().sum(1).int())
    with pytest.raises(ValueError, match=r"azp \* sum must fit in int32, got azp=1048576"):
        mixed_gemm.ops.azp_adjustment(torch.full((1, 300), 127, dtype=torch.int8), 2**20)
    for sign in (1, -1):  # one channel does not fit, the others do
        weight = torch.zeros(2, 300, dtype=torch.int8)
        weight[1] = sign * 127
        with pytest.raises(ValueError, match=r"azp \* sum must fit in int32"):
            mixed_gemm.ops.azp_adjustment(weight, 2**20)
    with pytest.raises(RuntimeError, match=r"must be int8 \[N, K\], got float32"):
        mixed_gemm.ops.azp_adjustment(torch.zeros(2, 2))


# --- torch around the ops ---------------------------------------------------------------------


def test_flops_are_those_of_the_gemm() -> None:
    p = make(ScaledCase(m=4, n=24, k=32))
    with FlopCounterMode(display=False) as counter:
        p.run()
    assert counter.get_total_flops() == 2 * 4 * 24 * 32


def test_reference_agrees_with_itself_on_dequantized_values() -> None:
    """The oracle against a plain float64 product of real numbers."""
    p = make(ScaledCase(azp="per_row", bias=True, out_dtype=torch.float32))
    assert p.azp is not None and p.bias is not None
    real_a = p.scale_a.double() * (p.a.double() - p.azp)
    real_w = p.scale_b.double()[:, None] * p.weight.double()
    expected = real_a @ real_w.t() + p.bias.double()
    oracle = reference_scaled.scaled_mm(
        p.a, p.b, p.scale_a, p.scale_b, p.bias, azp_adj=p.azp_adj, azp=p.azp
    )
    assert torch.allclose(oracle, expected, rtol=1e-12, atol=1e-12)
