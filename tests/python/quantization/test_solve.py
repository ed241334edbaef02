"""Codes and scales: never worse than what they start from, the best where all can be tried."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mixed_gemm.ops.problem import WEIGHTS
from mixed_gemm.quantization.methods.grid import Range
from mixed_gemm.quantization.methods.hqq import HQQ
from mixed_gemm.quantization.methods.search import search, unclipped
from mixed_gemm.quantization.methods.solve import (
    compensated,
    damped,
    descended,
    refitted,
    row_costs,
    towards_dense,
)
from mixed_gemm.weights.scheme import FLOAT8 as E4M3
from mixed_gemm.weights.scheme import SCHEMES

SIZES = st.tuples(st.integers(1, 9), st.integers(1, 300), st.sampled_from([16, 48, 128, 10**6]))
CODES = st.tuples(st.sampled_from([2, 3, 4, 8]), st.booleans())


def problem(seed: int, n: int, k: int) -> tuple[Tensor, Tensor]:
    """A weight ``[n, k]`` with channels of many sizes, and damped moments of correlated inputs."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2 * k + 8, k, generator=generator) @ torch.randn(k, k, generator=generator)
    x = x * torch.exp(torch.randn(k, generator=generator))
    weight = torch.randn(n, k, generator=generator) * torch.exp(
        torch.randn(n, 1, generator=generator)
    )
    return weight, damped(x.t() @ x / len(x), 0.01)


def codes_of(bits: int | str, zeros: bool, k: int, group: int, rows: int = 1) -> Range:
    """bits 0: float8; a name: a scheme of 4-bit numbers that are no integers."""
    if isinstance(bits, str):
        scheme = SCHEMES[bits].grouped(-1 if group >= k else group)
        return Range.of(scheme, k, torch.bfloat16)
    if bits == 0:
        return Range(-448, 448, min(group, k), False, torch.float32, rows, E4M3)
    return Range(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, min(group, k), zeros, torch.float32)


# Float8, and how many output channels share scales: one, some, all.
FLOAT8 = st.tuples(st.just(0), st.just(False), st.sampled_from([1, 2, 4, 128, 0]))


# Numbers of 4 bits: floats with scales of a byte, and code books.
FLOAT4 = st.tuples(st.sampled_from(["mxfp4", "nvfp4", "nf4", "fp4"]), st.just(False))


def is_float8(codes: Tensor) -> bool:
    return bool((codes == codes.to(torch.float8_e4m3fn).float()).all())


@settings(deadline=None, max_examples=120)
@given(SIZES, st.one_of(CODES, FLOAT8, FLOAT4), st.integers(0, 10**6))
def test_each_step_makes_the_error_smaller(
    size: tuple[int, int, int],
    kind: tuple[int | str, bool] | tuple[int, bool, int],
    seed: int,
) -> None:
    n, k, group = size
    weight, gram = problem(seed, n, k)
    of = codes_of(kind[0], kind[1], k, group, *kind[2:])
    grid = search(weight, of, gram.diagonal())
    codes = compensated(weight, grid, gram)

    def cost_of() -> Tensor:  # of the rows that share scales
        return of.pooled(row_costs(grid.values(codes), weight, gram))

    cost = cost_of()
    allowed = 1 + 1e-3  # sums of float32, in other orders
    for _ in range(2):
        grid = refitted(codes, weight, grid, gram)
        refit = cost_of()
        assert bool((refit <= cost * allowed + 1e-6).all())
        codes = descended(codes, weight, grid, gram)
        cost = cost_of()
        assert bool((cost <= refit * allowed + 1e-6).all())
    if of.numbers in WEIGHTS:
        numbers = torch.tensor(WEIGHTS[of.numbers].values)
        assert bool(torch.isin(codes, numbers).all())
    else:
        assert is_float8(codes) if of.numbers else bool((codes == codes.round()).all())
    assert torch.equal(grid.stored(grid.scale), grid.scale)
    shared = of.pooled(grid.scale, "amax")
    assert torch.equal(grid.scale, shared) if of.numbers else True
    assert not of.numbers or float(grid.scale.min()) > 0
    assert of.low <= float(codes.min()) <= float(codes.max()) <= of.high


@pytest.mark.parametrize("of", [codes_of(4, False, 256, 128), codes_of(0, False, 256, 256),
                                codes_of(0, False, 256, 128, 48),
                                *(codes_of(x, False, 256, 64) for x in
                                  ("mxfp4", "nvfp4", "nf4", "fp4"))], ids=str)  # fmt: skip
def test_gptq_beats_the_nearest_codes(of: Range) -> None:
    weight, gram = problem(3, 64, 256)
    grid = search(weight, of, gram.diagonal())
    nearest = row_costs(grid.values(grid.codes(weight)), weight, gram).sum()
    found = row_costs(grid.values(compensated(weight, grid, gram)), weight, gram).sum()
    assert found < 0.7 * nearest


def test_rows_that_share_scales() -> None:
    """48 and 16 of 64 rows, in groups of 128: the largest magnitude of a block is in range, and one
    scale is for all of it."""
    weight, _ = problem(5, 64, 200)
    grid = search(weight, codes_of(0, False, 200, 128, 48), shrinks=1)
    for rows in (slice(0, 48), slice(48, 64)):
        for g, columns in enumerate((slice(0, 128), slice(128, 200))):
            scale = grid.scale[rows, g]
            assert bool((scale == scale[0]).all())
            largest = float(weight[rows, columns].abs().max() / scale[0])
            assert largest == pytest.approx(448, rel=0.2)


@pytest.mark.parametrize("seed", range(8))
def test_descent_ends_where_no_other_code_is_better(seed: int) -> None:
    weight, gram = problem(seed, 1, 4)
    grid = search(weight, codes_of(2, True, 4, 4), gram.diagonal())
    codes = compensated(weight, grid, gram)
    for _ in range(20):
        codes = descended(codes, weight, grid, gram)
    cost = float(row_costs(grid.values(codes), weight, gram))
    every = torch.tensor(list(itertools.product(range(-2, 2), repeat=4)), dtype=torch.float32)
    one_away = every[(every != codes).sum(1) == 1]
    many = type(grid)(
        grid.range, grid.scale.expand(len(one_away), -1), grid.zero.expand(len(one_away), -1)
    )
    costs = row_costs(many.values(one_away), weight.expand(len(one_away), -1), gram)
    assert float(costs.min()) >= cost * (1 - 1e-4)


@settings(deadline=None, max_examples=60)
@given(SIZES, CODES, st.integers(0, 10**6))
def test_a_weight_on_a_grid_is_found(
    size: tuple[int, int, int], kind: tuple[int, bool], seed: int
) -> None:
    """Where every group has the outermost codes, its range says its scale."""
    (n, k, group), (bits, zeros) = size, kind
    generator = torch.Generator().manual_seed(seed)
    of = codes_of(bits, zeros, k, group)
    codes = torch.randint(of.low, of.high + 1, (n, k), generator=generator).float()
    codes[:, :: of.group] = of.low
    if zeros:
        codes[:, 1 :: of.group] = of.high
        if k % of.group == 1:
            return  # a last group of one element has one end only
    weight = codes * 0.25
    grid = search(weight, of)
    assert torch.equal(grid.values(grid.codes(weight)), weight) or k < 2


def test_importance_moves_the_scale() -> None:
    weight = torch.tensor([[0.11, 0.23, 0.31, 4.0] * 4])
    of = Range(-8, 7, 16, False, torch.float32)
    small = torch.tensor([1.0, 1.0, 1.0, 1e-6] * 4)
    equal, weighted = search(weight, of), search(weight, of, small)
    assert abs(float(weighted.scale)) < abs(float(equal.scale))


def test_the_error_that_comes_in_is_made_up_for() -> None:
    """W' x is closer to W x' than W x is, for inputs x that carry an error."""
    generator = torch.Generator().manual_seed(0)
    clean = torch.randn(4000, 32, generator=generator)
    x = clean @ (torch.eye(32) + torch.randn(32, 32, generator=generator) / 20)
    weight = torch.randn(8, 32, generator=generator)
    gram, cross = x.t() @ x / 4000, (x - clean).t() @ x / 4000
    left = [
        float((x @ towards_dense(weight, gram, cross, share).t() - clean @ weight.t()).norm())
        for share in (0.0, 0.5, 1.0)
    ]
    assert left[0] > left[1] > left[2]
    assert left[2] < 1e-3 * left[0]


@pytest.mark.parametrize("zeros", [False, True])
def test_hqq_prefers_few_large_errors(zeros: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(64, 256, generator=generator)
    weight[torch.rand(64, 256, generator=generator) < 0.01] *= 8
    of = Range(-8, 7, 64, zeros, torch.float32)
    hqq, start = HQQ().grid(weight, of, real_zeros=True), unclipped(weight, of)

    def size(grid: object) -> float:
        values = grid.values(grid.codes(weight))  # type: ignore[attr-defined]
        return float((values - weight).abs().pow(0.7).sum())

    assert size(hqq) < 0.98 * size(start)
