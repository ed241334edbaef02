"""The oracle against independent arithmetic, and the bound against the mutants it must kill."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from problems.gemm import Case, Problem, make
from torch import Tensor

import mixed_gemm
from mixed_gemm import reference
from mixed_gemm.ops import problem
from mixed_gemm.reference import gemm as reference_gemm


def test_vocabulary_equals_the_one_of_the_library(repository: Path) -> None:
    headers = ("csrc/core/quant_scheme.h", "csrc/core/scale_form.h")
    core = "".join((repository / header).read_text() for header in headers)
    layout = (repository / "csrc/layout/weight_layout.h").read_text()

    def names(constant: str) -> tuple[str, ...]:
        found = re.search(rf"{constant}\[\] = \{{(.*?)\}}", core, re.DOTALL)
        assert found, constant
        return tuple(re.findall(r'"(\w+)"', found.group(1)))

    def number(constant: str) -> int:
        found = re.search(rf"\b{constant}\s*=\s*(\d+)", layout)
        assert found, constant
        return int(found.group(1))

    assert names("kZeroModeNames") == problem.ZERO_MODES
    assert names("kActivationNames") == problem.ACTIVATIONS == tuple(reference.ACTIVATION_TABLE)
    dtypes = tuple(str(d).removeprefix("torch.") for d in problem.DTYPES)
    assert names("kElementTypeNames") == dtypes
    assert number("kLayoutVersion") == problem.LAYOUT_VERSION
    assert (number("kPadN"), number("kPadK")) == (problem.PAD_N, problem.PAD_K)


INTEGERS = [name for name, weight in problem.WEIGHTS.items() if weight.is_integer]
FLOATS = [name for name in reference.VALUES if name not in INTEGERS]


@pytest.mark.parametrize("weight", INTEGERS)
def test_weight_types_equal_those_of_the_library(weight: str) -> None:
    bits, bias, is_integer = problem.WEIGHTS[weight][:3]
    assert is_integer and len(reference.VALUES[weight]) == 1 << bits
    low, high = problem.integer_range(weight)
    assert reference.VALUES[weight].tolist() == list(range(low, high + 1))
    # All codes are 0, then all are the last one.
    for byte, value in ((0, low), (0xFF, high)):
        packed = torch.full(problem.packed_shape(64, 64, weight), byte, dtype=torch.uint8)
        assert mixed_gemm.unpack_weights(packed, bits, 64, 64).unique().tolist() == [value]
    assert reference.VALUES[weight][bias] == 0


@pytest.mark.parametrize("weight", FLOATS)
def test_float_types_equal_those_of_the_library(weight: str) -> None:
    values = reference.VALUES[weight]
    codes = torch.arange(len(values)).to(torch.int8).repeat(2, 1)
    packed = mixed_gemm.pack_codes(codes, weight)
    k = len(values)
    found = mixed_gemm.dequantize_codes(
        packed, torch.ones(1, 2), weight=weight, group_size=-1, n=2, k=k, dtype=torch.float32
    )
    is_number = ~values.isnan()
    assert torch.equal(found[0][is_number].double(), values[is_number])
    assert torch.equal(mixed_gemm.unpack_codes(packed, weight, 2, k), codes)
    if weight in problem.WEIGHTS:
        known = problem.WEIGHTS[weight]
        assert (1 << known.bits, known.bias, known.is_integer) == (k, 0, False)
        assert list(known.values) == values.tolist()
        assert known.is_book == (weight in reference_gemm.BOOKS)


def test_no_integers_but_those_of_the_weight_types_are_packed() -> None:
    for bits in set(range(-1, 34)) - set(problem.BITS):
        with pytest.raises(ValueError, match="bits must be 4 or 8"):
            mixed_gemm.pack_weights(torch.zeros(8, 16, dtype=torch.int8), bits)


@pytest.mark.parametrize("zero_mode", ["none", "sub", "add"])
@pytest.mark.parametrize("weight", INTEGERS)
def test_codes_stand_for_their_values_and_a_factor_multiplies_all(
    weight: str, zero_mode: str
) -> None:
    bits = problem.WEIGHTS[weight].bits
    p = make(Case(1, 5, 50, torch.float16, bits, 16, zero_mode))
    codes = (p.q.short() + problem.WEIGHTS[weight].bias).to(torch.uint8)
    whole = reference.dequantize(p.q, p.scales, p.zeros, **p.scheme())
    looked_up = reference.dequantize(codes, p.scales, p.zeros, weight=weight, **p.scheme())
    assert torch.equal(looked_up, whole)
    for factor in (torch.tensor(0.5), torch.arange(5.0)):
        found = reference.dequantize(
            codes, p.scales, p.zeros, weight=weight, factor=factor, **p.scheme()
        )
        for n in range(5):
            assert torch.equal(found[n], whole[n] * float(factor if factor.dim() == 0 else n))
    for wrong in (-1, 1 << bits):
        with pytest.raises((IndexError, RuntimeError)):
            reference.dequantize(torch.full((1, 16), wrong), torch.ones(1, 1), weight=weight)


def test_reference_never_imports_the_ops(repository: Path) -> None:
    for file in (repository / "mixed_gemm/reference").glob("*.py"):
        nodes = list(ast.walk(ast.parse(file.read_text())))
        outside = {n.module for n in nodes if isinstance(n, ast.ImportFrom) and n.level == 0}
        assert outside <= {"__future__", "torch", "collections.abc", "dataclasses", "typing"}, file
        assert all(n.level < 2 for n in nodes if isinstance(n, ast.ImportFrom)), file
        assert not any("ops" in ast.unparse(n) for n in nodes if isinstance(n, ast.Attribute)), file


@pytest.mark.parametrize("zero_mode", ["none", "sub", "sub_real", "add"])
def test_reference_equals_rational_arithmetic(zero_mode: str) -> None:
    p = make(Case(2, 5, 50, torch.float16, 4, 16, zero_mode, True, True))
    assert p.bias is not None and p.pre_scale is not None
    y = reference.fpA_intB_gemm(p.a, p.q, *p.extras(), **p.scheme())

    def exact(t: Tensor, *index: int) -> Fraction:
        return Fraction(t[index].item())

    for m in range(2):
        for n in range(5):
            total = exact(p.bias, n)
            for k in range(50):
                q, s = int(p.q[n, k]), exact(p.scales, k // 16, n)
                z = Fraction(0) if p.zeros is None else exact(p.zeros, k // 16, n)
                w = q * s + z if zero_mode == "add" else (q - z) * s
                total += exact(p.a, m, k) * exact(p.pre_scale, k) * w
            assert abs(Fraction(y[m, n].item()) - total) <= abs(total) * Fraction(1, 2**44)


@pytest.mark.parametrize("activation", problem.ACTIVATIONS)
def test_activation_slope_stays_under_its_constant(activation: str) -> None:
    function, lipschitz = reference.ACTIVATION_TABLE[activation]
    x = torch.linspace(-12, 12, 200_001, dtype=torch.float64)
    slope = (function(x).diff() / x.diff()).abs().max().item()
    assert 0.97 * lipschitz < slope <= lipschitz


# --- the bound ---------------------------------------------------------------------------------


def simulate(p: Problem, w: Tensor) -> Tensor:
    """What a correct kernel does with a weight: rounds it, sums in fp32, rounds once."""
    dtype = p.case.dtype
    y = p.a.float() @ w.to(dtype).float().t()
    return (y if p.bias is None else y + p.bias.float()).to(dtype)


def weight(p: Problem) -> Tensor:
    return reference.dequantize(p.q, p.scales, p.zeros, **p.scheme())


@pytest.mark.parametrize("zero_mode", ["none", "sub", "sub_real", "add"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("seed", range(5))
def test_bound_accepts_a_correct_kernel_with_room(
    seed: int, dtype: torch.dtype, zero_mode: str
) -> None:
    p = make(Case(16, 64, 2048, dtype, 4, 128, zero_mode, True), seed=seed)
    assert 0.01 < p.ratio(simulate(p, weight(p))) < 0.7


def sum_in_half(p: Problem) -> Tensor:
    w = weight(p).to(p.case.dtype)
    total = torch.zeros(p.case.m, p.case.n, dtype=p.case.dtype)
    for k in range(0, p.case.k, 16):
        total += (p.a[:, k : k + 16].float() @ w[:, k : k + 16].float().t()).to(p.case.dtype)
    return total


def drop_tail(p: Problem) -> Tensor:
    w = weight(p).clone()
    w[:, -32:] = 0
    return simulate(p, w)


def zero_off_by_one(p: Problem) -> Tensor:
    assert p.zeros is not None
    zeros = p.zeros.clone()
    zeros[3, 17] += 1
    return simulate(p, reference.dequantize(p.q, p.scales, zeros, **p.scheme()))


def swap_two_rows(p: Problem) -> Tensor:
    w = weight(p).clone()
    w[:, [5, 6]] = w[:, [6, 5]]
    return simulate(p, w)


def copy_neighbour(p: Problem) -> Tensor:
    out = simulate(p, weight(p))
    out[2, 9] = out[2, 10]
    return out


def scale_of_the_next_group(p: Problem) -> Tensor:
    return simulate(p, reference.dequantize(p.q, p.scales.roll(1, 0), p.zeros, **p.scheme()))


def unwritten(p: Problem) -> Tensor:
    out = simulate(p, weight(p))
    out[-1, -1] = torch.nan
    return out


MUTANTS = [
    sum_in_half,
    drop_tail,
    zero_off_by_one,
    swap_two_rows,
    copy_neighbour,
    scale_of_the_next_group,
    unwritten,
]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_bound_kills(mutant: Callable[[Problem], Tensor]) -> None:
    p = make(Case(16, 64, 4096, torch.float16, 4, 128, "sub"))
    assert p.ratio(simulate(p, weight(p))) < 1 < p.ratio(mutant(p))


def test_bound_grows_with_what_is_rounded() -> None:
    base = Case(4, 32, 256, torch.float16, 4, 32, "add", True, True, "gelu")

    def total(case: Case) -> float:
        p = make(case)
        options = {**p.scheme(), "activation": case.activation}
        return float(reference.error_bound(p.a, p.q, *p.extras(), **options).sum())

    assert total(replace(base, dtype=torch.bfloat16)) > 4 * total(base)
    assert total(base) > total(replace(base, pre_scale=False))


def test_error_ratio_of_a_wrong_shape_or_nan_is_infinite() -> None:
    y = torch.zeros(2, 3, dtype=torch.float64)
    assert reference.error_ratio(torch.zeros(3, 2), y, y + 1) == float("inf")
    assert reference.error_ratio(torch.full((2, 3), torch.nan), y, y + 1) == float("inf")
    assert reference.error_ratio(y + 0.5, y, y + 1) == 0.5
    assert reference.error_ratio(y[:0], y[:0], y[:0]) == 0.0


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16), ids=str)
@pytest.mark.parametrize("k", (1, 512))
def test_both_bounds_allow_for_zero_points_that_constants_do_not_hold(dtype, k):
    """They leave in two parts: what the constants hold, then the rest times the scale, which rounds
    by itself and for the whole group alike (activations that are all the same add that up)."""
    generator = torch.Generator().manual_seed(0)
    n, most = 2048, reference.gemm._MOST_ZERO[dtype]
    q = torch.randint(-8, 8, (n, k), generator=generator, dtype=torch.int8)
    scales = (0.5 + torch.rand(1, n, generator=generator)).mul(2**-8).to(dtype)
    zeros = torch.randint(most + 1, 3 * most, (1, n), generator=generator).to(dtype)
    a = torch.full((1, k), 0.7).to(dtype)
    rest = (most - zeros.double()).to(dtype).double()
    addend = (rest * scales.double()).to(dtype).double()
    weight = ((q.t().double() - most) * scales.double() + addend).to(dtype)
    out = (a.double() @ weight.double()).to(dtype)
    oracle = reference.oracle(a, q, scales, zeros)
    tighter = torch.minimum(oracle.statistical, oracle.hard)
    assert 0.2 < reference.error_ratio(out, oracle.expected, tighter) <= 1


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16), ids=str)
def test_bounds_allow_for_codes_that_are_summed_as_they_are_stored(dtype):
    """A column whose weights are all 0 has sums of stored codes that are not, in fp32."""
    generator = torch.Generator().manual_seed(0)
    n, k, stored = 64, 512, reference.gemm._STORED_BIAS[dtype]
    q = torch.randint(-8, 8, (n, k), generator=generator, dtype=torch.int8)
    q[::2] = 0
    scales = (0.5 + torch.rand(1, n, generator=generator)).to(dtype)
    zeros = torch.zeros(1, n, dtype=dtype)
    a = torch.randn(8, k, generator=generator).to(dtype)
    sums, of_tokens = torch.zeros(8, n), torch.zeros(8, 1)
    for column in range(k):
        sums = sums + a[:, column, None].float() * (q[:, column].float() + stored)
        of_tokens = of_tokens + a[:, -1 - column, None].float()  # in another order
    out = ((sums - stored * of_tokens) * scales.float()).to(dtype)
    zero = out[:, ::2].double()
    assert zero.any(), "none of them was rounded"
    oracle = reference.oracle(a, q, scales, zeros)
    tighter = torch.minimum(oracle.statistical, oracle.hard)
    assert 2**-12 < reference.error_ratio(zero, torch.zeros_like(zero), tighter[:, ::2]) <= 1
    assert reference.error_ratio(out, oracle.expected, tighter) <= 1
