"""The generator of problems itself: arrays hold every pair, places hold the same values, and the
verdict sees what is known to hide from loose tolerances.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import registry, verdict
from problems.covering import all_pairs, each_once, may_meet
from problems.gemm import ZERO_MODES, Case, make
from problems.placing import LEADS, PLACES, lead, place, poison_of
from torch import Tensor

from mixed_gemm import reference


@settings(max_examples=60)
@given(st.lists(st.integers(1, 7), min_size=2, max_size=6), st.integers(0, 1000))
def test_all_pairs_holds_every_allowed_pair_and_no_other(sizes: list[int], seed: int) -> None:
    factors = {f"f{i}": tuple(range(size)) for i, size in enumerate(sizes)}
    # The values 0 stay together with anything, so every allowed pair is part of a whole row.
    rules = {("f0", "f1"): lambda x, y: (x + y + seed) % 3 != 0 or 0 in (x, y)}
    rows = list(all_pairs(factors, rules, seed))
    assert all(may_meet(rules, row) for row in rows)
    for a, b in itertools.combinations(factors, 2):
        met = {(row[a], row[b]) for row in rows}
        pairs = itertools.product(factors[a], factors[b])
        assert met == {(x, y) for x, y in pairs if may_meet(rules, {a: x, b: y})}
    product = sorted(sizes)[-1] * sorted(sizes)[-2]
    assert len(rows) <= 2 * product + 10, "few rows are the point of it"


def test_all_pairs_says_which_pair_no_row_can_hold() -> None:
    rules = {("a", "c"): lambda a, c: a != c, ("b", "c"): lambda b, c: b == c}
    with pytest.raises(ValueError, match="no row that the rules allow holds"):
        list(all_pairs({"a": (0, 1), "b": (0, 1), "c": (0, 1)}, rules))


def test_each_once_holds_the_pairs_that_a_few_rows_can() -> None:
    """Two lists that turn by one index meet in a part of their pairs where their lengths share a
    divisor, as 2 and 4 do; here few rows more than 3 x 4 hold all pairs of 2, 3 and 4."""
    factors = {"kernel": tuple(range(18)), "a": (0, 1), "b": (0, 1, 2), "c": (0, 1, 2, 3)}
    rules = {("kernel", "a"): lambda kernel, a: kernel > 2 or a == 0}
    rows = list(each_once("kernel", factors, rules))
    assert [row["kernel"] for row in rows] == list(range(18))
    assert all(may_meet(rules, row) for row in rows)
    for x, y in itertools.combinations("abc", 2):
        met = {(row[x], row[y]) for row in rows}
        assert met == set(itertools.product(factors[x], factors[y])), (x, y)
    with pytest.raises(ValueError, match="holds kernel=1"):
        list(each_once("kernel", factors, {("kernel", "a"): lambda kernel, a: kernel != 1}))


def test_one_group_with_zero_points_meets_every_depth() -> None:
    """Lists that turned by one index let it meet K = 512 alone, which hid a wrong kernel."""
    cases = list(registry.OPS["fpA_intB_gemm"].pairs())
    met = {(c.k, c.zero_mode) for c in cases if c.group_size == -1}
    assert met >= set(itertools.product((77, 129, 257, 513, 777, 1001), ZERO_MODES))


@pytest.mark.parametrize("op", registry.OPS)
def test_a_case_is_its_repr_and_has_neighbours_of_one_difference(op: str) -> None:
    rng, table = random.Random(3), registry.OPS[op]
    case = table.draw(rng, 1 << 18)
    assert eval(repr(case), registry.names()) == case and registry.op_of(case) == op
    row = table.draw_row(rng, 1 << 18)
    others = list(table.neighbours(row, rng))
    assert len({name for _, name in others}) > len(table.factors) // 2
    for other, name in others:
        assert [k for k in row if row[k] != other[k]] == [name]


@pytest.mark.parametrize("shape", ((5, 7), (1, 4), (0, 3), (2, 3, 4), (6,)))
@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("dtype", (torch.float16, torch.int8, torch.int32, torch.uint8))
def test_places_hold_the_values_and_poison_around(
    dtype: torch.dtype, where: str, shape: tuple[int, ...]
) -> None:
    x = torch.randint(1, 50, shape).to(dtype)
    placed = place(x, where)
    expected = x if where != "expanded" or not len(x) else x[:1].expand(shape)
    assert torch.equal(placed, expected)
    if x.numel() == 0 or where in ("alone", "transposed", "expanded"):
        return
    whole = torch.empty(0, dtype=dtype).set_(placed.untyped_storage())
    poison = whole.isnan() if dtype.is_floating_point else whole == poison_of(dtype)
    assert int(poison.sum()) == whole.numel() - x.numel() > 0


def test_places_are_what_they_say() -> None:
    x = torch.arange(24).reshape(4, 6).to(torch.int8)
    strides = {where: place(x, where).stride() for where in PLACES}
    assert strides["guarded"] == (6, 1) and place(x, "guarded").storage_offset() == 64
    assert place(x, "odd_offset").storage_offset() % 2 == 1
    assert strides["every_second_column"] == (12, 2) and strides["every_second_row"] == (12, 1)
    assert strides["transposed"] == (1, 4) and strides["expanded"] == (0, 1)
    assert strides["in_odd_rows"][0] % 2 == 1 and strides["in_wide_rows"][0] == 46


@pytest.mark.parametrize("shape", LEADS)
def test_leads_keep_the_rows(shape: str) -> None:
    x = torch.randn(1 if shape == "1d" else 6, 5)
    led = lead(x, shape)
    rows = led.reshape(-1, 5)
    assert torch.equal(rows, x)
    assert led.dim() == {"1d": 1, "2d": 2, "4d": 4}.get(shape, 3)


# --- what the verdict sees ----------------------------------------------------------------------


def out_of(problem: object, **changes: Tensor) -> Tensor:
    """The exact result of changed operands, rounded once."""
    tensors = {name: getattr(problem, name) for name in ("a", "q", "scales", "zeros")}
    exact = reference.fpA_intB_gemm(**{**tensors, **changes}, group_size=128)
    return exact.to(tensors["a"].dtype)


def one_zero(p: object) -> Tensor:
    zeros = p.zeros.clone()
    zeros[3, 17] += 1
    return out_of(p, zeros=zeros)


def swapped_depth(p: object) -> Tensor:
    order = torch.arange(p.q.shape[1])
    order[[100, 101]] = order[[101, 100]]
    return out_of(p, q=p.q[:, order])


def dropped_depth(p: object) -> Tensor:
    a = p.a.clone()
    a[:, -32:] = 0
    return out_of(p, a=a)


def neighbour(p: object) -> Tensor:
    out = out_of(p)
    out[5, 100] = out[5, 101]
    return out


def half_accumulator(p: object) -> Tensor:
    w = reference.dequantize(p.q, p.scales, p.zeros, group_size=128).half()
    total = torch.zeros(p.a.shape[0], w.shape[0], dtype=torch.float16)
    for k in range(0, w.shape[1], 16):
        total = total + (p.a[:, k : k + 16].float() @ w[:, k : k + 16].t().float()).half()
    return total


def unwritten(p: object) -> Tensor:
    out = out_of(p)
    out[-1, -1] = float("nan")
    return out


MUTANTS = (one_zero, swapped_depth, dropped_depth, neighbour, half_accumulator, unwritten)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda f: f.__name__)
def test_verdict_kills(mutant: Callable[[object], Tensor]) -> None:
    problem = make(Case(16, 256, 4096, torch.float16, 4, 128, "sub"))
    oracle = problem.oracle()
    assert float(verdict.worst(out_of(problem), oracle)) <= 0.5, "a correct result is far below"
    assert not float(verdict.worst(mutant(problem), oracle)) <= 1


def test_the_tighter_bound_is_the_hard_one_for_few_products_and_never_for_many() -> None:
    few, many = make(Case(4, 33, 9)).oracle(), make(Case(4, 33, 1024)).oracle()
    assert (few.hard < few.statistical).all()
    assert (many.statistical < many.hard).all()
