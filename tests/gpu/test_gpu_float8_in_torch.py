"""float8 that torch multiplies inside of ``scaled_mm``: ``torch._scaled_mm`` (cuBLAS), which is the
choice behind compute capability 9.0, and blocks added up by ``torch.mm``, where no kernel has them.
Both by name, also on 9.0, whose own kernels are the choice there: against float64 and beside ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from problems.placing import PLACES_OF_ROWS, place
from problems.registry import OPS
from problems.scaled import (
    OUT_DTYPES,
    TORCH_BLOCKS,
    TORCH_SCALED,
    ScaledCase,
    ScaledProblem,
    answer_for,
    make,
)
from scaled_configs import DEVICE, FLOAT8
from streams import (
    assert_repeats_are_equal,
    assert_replays_what_it_computes,
    assert_sees_its_producer,
    assert_two_streams_share_nothing,
)
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

import mixed_gemm

pytestmark = pytest.mark.gpu

BLOCKS = ((128, 128), (16, 48), (1, 5), (128, 4096))
ROWS_OF = ScaledCase(33, 144, 272, torch.bfloat16, FLOAT8)
BLOCKS_OF = ScaledCase(33, 144, 272, torch.bfloat16, FLOAT8, block=(16, 48))
BY_NAME = {TORCH_SCALED: ROWS_OF, TORCH_BLOCKS: BLOCKS_OF}


def capability() -> tuple[int, int]:
    return torch.cuda.get_device_capability()


@pytest.fixture(autouse=True)
def multiplies_float8() -> None:
    if capability() < (8, 9):
        pytest.skip("this GPU multiplies no float8")


def operators_of(call: Callable[[], Any]) -> set[str]:
    with profile(activities=[ProfilerActivity.CPU]) as found:
        call()
    return {event.key for event in found.key_averages()}


def assert_beside_ours(problem: ScaledProblem, config: str, out: Tensor) -> None:
    """Within the bounds of both of what the choice computes."""
    ours, by_torch = problem.sums(None), problem.sums(config)
    (_, bound), (_, other) = problem.oracle(*ours), problem.oracle(*by_torch)
    difference = (out.double() - problem.run().double()).abs()
    assert (difference <= bound.reshape_as(difference) + other.reshape_as(difference)).all()


def check(record: Any, problem: ScaledProblem, config: str) -> None:
    out = problem.run(config=config)
    ratio = float(problem.verdict(out, config))
    record(config, ratio)
    assert ratio <= 1, problem.case
    if out.numel() > 0:
        assert_beside_ours(problem, config, out)


@pytest.mark.parametrize("out_dtype", OUT_DTYPES, ids=str)
def test_rows_and_columns_meet_the_bound_and_ours(record: Any, out_dtype: torch.dtype) -> None:
    """Every two values of the table of problems, views of every kind among them."""
    of: dict[str, Any] = {"operand": (FLOAT8,), "block": (None,), "azp": ("none",)}
    sizes: dict[str, Any] = {"n": (0, 16, 48, 128, 272, 1008), "k": (16, 48, 128, 272, 1024, 2064)}
    cases = list(OPS["scaled_mm"].pairs(**of, **sizes, out_dtype=(out_dtype,)))
    assert {case.b_place for case in cases} == set(PLACES_OF_ROWS)
    for i, case in enumerate(cases):
        check(record, make(case, DEVICE, seed=i), TORCH_SCALED)


@pytest.mark.parametrize("out_dtype", OUT_DTYPES, ids=str)
def test_blocks_meet_the_bound_and_ours(record: Any, out_dtype: torch.dtype) -> None:
    of: dict[str, Any] = {"operand": (FLOAT8,), "block": BLOCKS, "azp": ("none",)}
    cases = list(OPS["scaled_mm"].pairs(**of, out_dtype=(out_dtype,)))
    assert {case.block for case in cases} == set(BLOCKS)
    for i, case in enumerate(cases):
        check(record, make(case, DEVICE, seed=i), TORCH_BLOCKS)


@pytest.mark.parametrize("m", (1, 16, 300, 4096))
def test_larger_products_meet_the_bound_and_ours(record: Any, m: int) -> None:
    for i, out_dtype in enumerate(OUT_DTYPES):
        rows = ScaledCase(m, 4096, 2048, out_dtype, FLOAT8, bias=i % 2 == 0)
        check(record, make(rows, DEVICE, drawn_on=DEVICE), TORCH_SCALED)
        blocks = ScaledCase(m, 1024, 2048, out_dtype, FLOAT8, bias=i % 2 == 0, block=(128, 128))
        check(record, make(blocks, DEVICE, drawn_on=DEVICE), TORCH_BLOCKS)


@pytest.mark.parametrize("config", BY_NAME)
def test_names_run_what_they_say(config: str) -> None:
    problem = make(BY_NAME[config], DEVICE)
    operator = config.replace("torch.", "aten::")
    assert operator in operators_of(lambda: problem.run(config=config))


def test_the_choice_is_torchs_behind_hopper_and_ours_before() -> None:
    for m, n, k in ((1, 64, 128), (33, 144, 272), (100, 256, 1024), (3, 77, 130)):
        for out_dtype in OUT_DTYPES:
            problem = make(ScaledCase(m, n, k, out_dtype, FLOAT8), DEVICE)
            torchs = capability() > (9, 0) and n % 16 == 0 and k % 16 == 0
            assert ("aten::_scaled_mm" in operators_of(problem.run)) == torchs
            plan = mixed_gemm.plan(m, n, k, dtype=FLOAT8, out_dtype=out_dtype, device=DEVICE)
            assert (plan.selected == TORCH_SCALED) == torchs
            listed = [c.config for c in plan.candidates]
            assert (TORCH_SCALED in listed) == (n % 16 == 0 and k % 16 == 0)


@pytest.mark.parametrize("block", BLOCKS)
def test_the_choice_of_blocks_is_torchs_where_no_kernel_has_them(
    record: Any, block: tuple[int, int]
) -> None:
    problem = make(ScaledCase(9, 260, 400, torch.float16, FLOAT8, block=block), DEVICE)
    ours = capability() == (9, 0) and block == (128, 128)
    assert ("aten::mm" in operators_of(problem.run)) == (not ours)
    assert (answer_for(problem.case, DEVICE)["selected"] == TORCH_BLOCKS) == (not ours)
    ratio = float(problem.verdict(problem.run()))
    record("blocks-selected", ratio)
    assert ratio <= 1


@pytest.mark.parametrize("config", BY_NAME)
def test_repeats_streams_and_graphs(config: str) -> None:
    problem = make(BY_NAME[config], DEVICE)

    def run(a: Tensor) -> Tensor:
        return problem.run(a, config=config)

    def fresh(seed: int) -> Tensor:
        return make(problem.case, DEVICE, seed=seed).a

    assert_repeats_are_equal(lambda: run(problem.a))
    assert_two_streams_share_nothing(run, [fresh(1), fresh(2)])
    assert_replays_what_it_computes(run, problem.a, fresh)
    assert_sees_its_producer(run, problem.a)


@pytest.mark.parametrize("config", BY_NAME)
def test_memory_beside_the_operands_is_not_touched(config: str) -> None:
    problem = make(BY_NAME[config], DEVICE)
    expected = problem.run(config=config)
    for where in ("guarded", "odd_offset", "every_second_row"):
        a = place(problem.a, where)
        torch.testing.assert_close(problem.run(a, config=config), expected)


def test_blocks_under_autocast_are_added_up_in_fp32() -> None:
    problem = make(ScaledCase(9, 40, 400, torch.float32, FLOAT8, block=(16, 48)), DEVICE)
    expected = problem.run(config=TORCH_BLOCKS)
    with torch.autocast("cuda", torch.bfloat16):
        assert torch.equal(problem.run(config=TORCH_BLOCKS), expected)


def test_gradients_of_the_bias_and_graphs_of_torch_compile() -> None:
    """No GPU has a kernel for these blocks."""
    problem = make(ScaledCase(9, 40, 400, torch.float32, FLOAT8, bias=True, block=(16, 48)), DEVICE)
    expected = problem.run()
    assert problem.bias is not None
    bias = problem.bias.clone().requires_grad_()
    problem.run(bias=bias).sum().backward()
    assert torch.equal(bias.grad, torch.full_like(bias, 9))
    rest = (problem.b, problem.scale_a, problem.scale_b, problem.bias)
    options = {"out_dtype": torch.float32, "block_size": (16, 48)}
    compiled = torch.compile(mixed_gemm.scaled_mm, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(problem.a, *rest, **options), expected)


@pytest.mark.parametrize(
    ("case", "config", "text"),
    [
        (ScaledCase(4, 40, 64, operand=FLOAT8), TORCH_SCALED, "multiples of 16, got N=40, K=64"),
        (ScaledCase(4, 64, 0, operand=FLOAT8), TORCH_SCALED, "multiples of 16, got N=64, K=0"),
        (ScaledCase(4, 64, 64), TORCH_SCALED, "multiplies float8 only"),
        (BLOCKS_OF, TORCH_SCALED, "takes scales of rows and columns, not of blocks"),
        (ROWS_OF, TORCH_BLOCKS, "takes scales of blocks, not of rows and columns"),
    ],
    ids=str,
)
def test_what_they_cannot_multiply_is_refused(case: ScaledCase, config: str, text: str) -> None:
    with pytest.raises(RuntimeError, match=f"{config} .*{text}"):
        make(case, DEVICE).run(config=config)


def test_plans_list_torch_without_a_time() -> None:
    candidates = answer_for(ROWS_OF, DEVICE)["candidates"]
    at = 0 if capability() > (9, 0) else -1
    assert candidates[at] == json.loads(f'{{"config": "{TORCH_SCALED}", "predicted_us": null}}')
