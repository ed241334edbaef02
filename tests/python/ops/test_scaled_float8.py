"""scaled_mm of float8 on the CPU: every pair of codes, sums that are exact, scales of every form
against float64, and scales that are no numbers.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems.registry import OPS
from problems.scaled import ScaledCase, make, opcheck
from support.op_calls import Arguments
from support.paths import agreed
from torch import Tensor, func

import mixed_gemm
from mixed_gemm import reference
from mixed_gemm.reference import scaled as reference_scaled

FP8 = torch.float8_e4m3fn
CODES = torch.arange(256, dtype=torch.uint8).view(FP8)
ROWS = (1, 2, 3, 5, 16, 256)  # of the kernels for few rows and for many
ONE = torch.ones(1)


def equal(out: Tensor, expected: Tensor) -> bool:
    return torch.equal(out.isnan(), expected.isnan()) and torch.equal(
        out.nan_to_num(-1.0), expected.nan_to_num(-1.0)
    )


def blocks_of(m: int, n: int, k: int, block: tuple[int, int]) -> tuple[Tensor, Tensor]:
    blocks = -(-k // block[1])
    return torch.rand(m, blocks) + 0.5, torch.rand(-(-n // block[0]), blocks) - 1.2


@pytest.mark.parametrize("place", (0, 17, 130))
@pytest.mark.parametrize("m", ROWS)
def test_every_product_of_two_codes_is_exact(m: int, place: int) -> None:
    """Alone in K, so that nothing rounds; a NaN is one wherever it stands."""
    for first in range(0, 256, m):
        rows = CODES.view(torch.uint8)[first : first + m]
        a, w = (torch.zeros(x, 131, dtype=torch.uint8) for x in (len(rows), 256))
        a[:, place], w[:, place] = rows, CODES.view(torch.uint8)
        expected = rows.view(FP8).float()[:, None] * CODES.float()[None]
        operands = (a.view(FP8), w.view(FP8).t())
        out = mixed_gemm.scaled_mm(*operands, ONE, ONE, out_dtype=torch.float32)
        assert equal(out, expected)
        scales = torch.ones(len(rows), 3), torch.ones(16, 3)
        out = mixed_gemm.scaled_mm(*operands, *scales, out_dtype=torch.float32, block_size=(16, 48))
        assert equal(out, expected)


@pytest.mark.parametrize("block", (None, (128, 128), (7, 48)))
@pytest.mark.parametrize("m", ROWS)
def test_sums_of_small_integers_are_exact(m: int, block: tuple[int, int] | None) -> None:
    """A lattice: whatever order a kernel adds in, every partial sum is an integer below 2^24.
    Scales are powers of two."""
    torch.manual_seed(m)
    k, n = 777, 45
    a, w = (torch.randint(-15, 16, (x, k)).float().to(FP8) for x in (m, n))
    scale_a, scale_b = torch.full((m, 1), 0.5), torch.full((n,), 4.0)
    options: dict[str, Any] = {"out_dtype": torch.float32}
    if block is not None:
        scale_a, scale_b = (0 * x + 2.0 ** (torch.arange(x.shape[1]) % 3)
                            for x in blocks_of(m, n, k, block))  # fmt: skip
        options["block_size"] = block
    out = mixed_gemm.scaled_mm(a, w.t(), scale_a, scale_b, **options)
    exact = reference_scaled.scaled_mm(a, w.t(), scale_a, scale_b, block_size=block)
    assert torch.equal(out.double(), exact)


@pytest.mark.parametrize("m", ROWS)
def test_one_hot_rows_read_the_weight_back(m: int) -> None:
    k, n, block = 300, 70, (32, 64)
    w = torch.randn(n, k).to(FP8)
    at = torch.randint(0, k, (m,))
    a = torch.nn.functional.one_hot(at, k).float().to(FP8)
    scale_a, scale_b = blocks_of(m, n, k, block)
    out = mixed_gemm.scaled_mm(
        a, w.t(), scale_a, scale_b, out_dtype=torch.float32, block_size=block
    )
    scales = (
        scale_a[torch.arange(m), at // 64, None] * scale_b[torch.arange(n) // 32][:, at // 64].t()
    )
    assert torch.equal(out, w.float()[:, at].t() * scales)


blocks = st.one_of(
    st.none(),
    st.just((128, 128)),
    st.tuples(st.integers(1, 200), st.integers(1, 200)),
)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 300),
    st.integers(1, 150),
    st.integers(0, 700),
    blocks,
    st.sampled_from((torch.float16, torch.bfloat16, torch.float32)),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_every_form_of_scales_is_within_the_bound(
    m: int,
    n: int,
    k: int,
    block: tuple[int, int] | None,
    out_dtype: torch.dtype,
    row_scales: bool,
    column_scales: bool,
    bias: bool,
) -> None:
    problem = make(
        ScaledCase(m, n, k, out_dtype, FP8, row_scales, column_scales, bias=bias, block=block)
    )
    assert problem.ratio(problem.run()) <= 1


def test_the_table_of_problems_has_blocks() -> None:
    cases = [c for c in OPS["scaled_mm"].pairs() if c.block is not None]
    assert len({(c.block, c.out_dtype) for c in cases}) >= 12


@pytest.mark.parametrize("block", ((128, 128), (5, 7)))
def test_the_bound_sees_a_scale_of_another_block(block: tuple[int, int]) -> None:
    problem = make(ScaledCase(9, 260, 400, torch.float32, FP8, block=block))
    out = problem.run()
    assert problem.ratio(out) <= 1
    for name in ("scale_a", "scale_b"):
        wrong = getattr(problem, name).roll(1, 1)
        assert problem.ratio(problem.run(**{name: wrong})) > 1


def test_blocks_are_what_they_stand_for() -> None:
    """A scale for all of K, as blocks: the same up to the order of two roundings."""
    p = make(ScaledCase(6, 40, 200, torch.float32, FP8, True, True))
    whole = p.run()
    as_blocks = p.run(scale_a=p.scale_a, scale_b=p.scale_b.view(40, 1), block_size=(1, 200))
    torch.testing.assert_close(as_blocks, whole, rtol=1e-5, atol=1e-6)


# --- scales that are no numbers ------------------------------------------------------------------

SPECIAL = (0.0, -0.0, math.inf, -math.inf, math.nan, 1e-40, 3e38)


@pytest.mark.parametrize("value", SPECIAL)
@pytest.mark.parametrize("m", (1, 2, 9))
def test_special_scales_do_what_ieee_arithmetic_does(m: int, value: float) -> None:
    """Integers whose sums are exact, so that the expected value is one in fp32; a block of zeros
    times infinity is NaN."""
    n, k, block = 20, 100, (8, 32)
    a, w = (torch.randint(-3, 4, (x, k)).float().to(FP8) for x in (m, n))
    w[3] = 0
    for name in ("scale_a", "scale_b"):
        scale_a, scale_b = torch.ones(m, 4), torch.ones(3, 4)
        (scale_a if name == "scale_a" else scale_b)[-1, 2] = value
        out = mixed_gemm.scaled_mm(
            a, w.t(), scale_a, scale_b, out_dtype=torch.float32, block_size=block
        )
        expected = torch.zeros(m, n)
        for g in range(4):
            part = slice(32 * g, 32 * g + 32)
            sums = a[:, part].float() @ w[:, part].float().t()
            rows = scale_b[:, g].repeat_interleave(8)[:n]
            expected += sums * (scale_a[:, g : g + 1] * rows)
        assert equal(out, expected)
    scale = torch.ones(m, 1)
    scale[-1] = value
    out = mixed_gemm.scaled_mm(a, w.t(), scale, ONE, out_dtype=torch.float32)
    assert equal(out, scale * (a.float() @ w.float().t()))


@pytest.mark.parametrize("block", (None, (16, 32)))
@pytest.mark.parametrize("m", (1, 3, 40))
def test_a_nan_spoils_its_row_or_column_only(m: int, block: tuple[int, int] | None) -> None:
    problem = make(ScaledCase(m, 50, 150, torch.float32, FP8, block=block))
    whole, at = problem.run(), m // 2
    a = problem.a.clone()
    a[at, 149] = math.nan
    out = problem.run(a)
    assert out[at].isnan().all()
    keep = torch.arange(m) != at
    assert torch.equal(out[keep], whole[keep])
    weight = problem.weight.clone()
    weight[7, 0] = math.nan
    out = problem.run(b=weight.t())
    assert out[:, 7].isnan().all() and out.isnan().sum() == m


# --- views, and torch around it ------------------------------------------------------------------


def test_views_equal_contiguous() -> None:
    p = make(ScaledCase(6, 33, 67, torch.float32, FP8, block=(16, 32)))
    expected = p.run()
    wide = torch.zeros(6, 80).to(FP8)
    wide[:, 5:72] = p.a
    assert torch.equal(p.run(wide[:, 5:72]), expected)
    assert torch.equal(p.run(p.a.t().contiguous().t()), expected)
    three = p.run(p.a.view(2, 3, 67), scale_a=p.scale_a.view(2, 3, -1))
    assert torch.equal(three.view(6, 33), expected)
    assert torch.equal(p.run(p.a.view(2, 3, 67)).view(6, 33), expected), "scales as [M, blocks]"
    strided = torch.stack((p.scale_b, p.scale_b), -1)[..., 0]
    assert torch.equal(p.run(scale_b=strided), expected)
    row = p.run(p.a[0], scale_a=p.scale_a[0])
    assert row.shape == (33,) and torch.allclose(row, expected[0])
    for m, n, k in ((0, 33, 67), (6, 0, 67), (6, 33, 0)):
        empty = make(ScaledCase(m, n, k, torch.float32, FP8, bias=True, block=(16, 32)))
        assert empty.ratio(empty.run()) <= 1


def test_opcheck() -> None:
    opcheck(make(ScaledCase(5, 40, 96, torch.float16, FP8, bias=True, block=(16, 32))))
    for size in (None, 32):
        options = {"block_size": size}
        torch.library.opcheck(
            torch.ops.mixed_gemm.quantize_fp8.default, (torch.randn(3, 96),), options
        )


def test_vmap_takes_blocks() -> None:
    p = make(ScaledCase(5, 40, 96, torch.float32, FP8, block=(16, 32)))
    a = torch.stack((p.a.view(torch.uint8), p.a.view(torch.uint8).flip(0))).view(FP8)
    scale = torch.stack((p.scale_a, 2 * p.scale_a))

    def run(a: Tensor, scale: Tensor) -> Tensor:
        return p.run(a, scale_a=scale)

    for dims in ((0, 0), (0, None), (None, 0)):
        given = [x if d == 0 else x[0] for x, d in zip((a, scale), dims, strict=True)]
        loop = [
            run(*(x[i] if d == 0 else x for x, d in zip(given, dims, strict=True)))
            for i in range(2)
        ]
        torch.testing.assert_close(func.vmap(run, dims)(*given), torch.stack(loop))


def test_compiles_with_changing_batch() -> None:
    p = make(ScaledCase(6, 40, 96, torch.float32, FP8, block=(16, 32)))

    @torch.compile(fullgraph=True, dynamic=True)
    def layer(x: Tensor) -> Tensor:
        q, scale = mixed_gemm.quantize_fp8(x, block_size=32)
        return mixed_gemm.scaled_mm(
            q, p.b, scale, p.scale_b, out_dtype=torch.float32, block_size=(16, 32)
        )

    for m in (6, 3, 2):
        x = torch.randn(m, 96)
        q, scale = mixed_gemm.quantize_fp8(x, block_size=32)
        assert torch.equal(layer(x), p.run(q, scale_a=scale))


# --- refusals ------------------------------------------------------------------------------------


def call() -> Arguments:
    p = make(ScaledCase(3, 40, 96, torch.float32, FP8, bias=True, block=(16, 32)))
    given = {"a": p.a, "b": p.b, "scale_a": p.scale_a, "scale_b": p.scale_b, "bias": p.bias}
    return {**given, "out_dtype": torch.float32, "block_size": [16, 32]}


REFUSED: dict[str, tuple[Arguments, type[Exception], str]] = {
    "zero": ({"block_size": [0, 32]}, ValueError, r"block_size must be \(rows of the weight"),
    "huge": ({"block_size": [16, 2**31]}, ValueError, "each in 1"),
    "int8": (
        {"a": torch.zeros(3, 96).char(), "b": torch.zeros(40, 96).char().t()},
        ValueError,
        r"block_size must be None for int8.*got \(16, 32\)\. Hint: mixed_gemm.block_quant_gemm",
    ),
    "scales of rows": (
        {"scale_a": torch.ones(3, 1)},
        ValueError,
        r"scale_a must be \(..., ceil\(K/block_size\[1\]\)\) = \(3, 3\), got \(3, 1\); M=3, N=40",
    ),
    "one scale": ({"scale_a": torch.ones(1)}, ValueError, r"got \(1,\)"),
    "transposed": (
        {"scale_b": lambda: torch.ones(3, 4)[:, :3].t()[:, :2]},
        ValueError,
        "scale_b must",
    ),
    "scales of columns": (
        {"scale_b": torch.ones(40)},
        ValueError,
        r"scale_b must be \(ceil\(N/block_size\[0\]\), ceil\(K/block_size\[1\]\)\) = \(3, 3\)",
    ),
    "float64": ({"scale_b": torch.ones(3, 3).double()}, TypeError, "scale_b must be float32"),
    "e5m2": (
        {"a": torch.zeros(3, 96).to(torch.float8_e5m2)},
        TypeError,
        r"a must be int8 or float8_e4m3fn, got float8_e5m2. Hint: mixed_gemm.ops.quantize_fp8",
    ),
    "e5m2 weight": (
        {"b": torch.zeros(40, 96).to(torch.float8_e5m2).t()},
        TypeError,
        "b must be float8_e4m3fn",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_alike_on_every_path(case: str) -> None:
    changes, kind, text = REFUSED[case]
    changes = {
        k: v() if callable(v) and not isinstance(v, Tensor) else v for k, v in changes.items()
    }
    error = agreed("scaled_mm", {**call(), **changes})
    assert isinstance(error, kind) and error is not None
    with pytest.raises(kind, match=text):
        raise error


def test_shapes_alone_do_not_choose_blocks() -> None:
    """One row and one block: [1, 1] is both, and means what block_size says."""
    a, w = torch.ones(1, 8).to(FP8), torch.ones(1, 8).to(FP8)
    scale = torch.full((1, 1), 3.0)
    for options in ({}, {"block_size": (128, 128)}):
        out = mixed_gemm.scaled_mm(a, w.t(), scale, scale, out_dtype=torch.float32, **options)
        assert out.item() == 72
    m = 2  # rows as many as blocks
    a, w = torch.ones(m, 256).to(FP8), torch.ones(m, 256).to(FP8)
    scales = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    with pytest.raises(ValueError, match="scale_a must have one element or be"):
        mixed_gemm.scaled_mm(a, w.t(), scales, scales, out_dtype=torch.float32)
    assert reference.error_ratio(ONE, ONE.double(), ONE.double()) == 0
