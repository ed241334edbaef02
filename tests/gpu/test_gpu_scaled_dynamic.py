"""scaled_mm_dynamic on CUDA: the bits of quantize_per_token and scaled_mm, whose launches one call
makes, in odd places, on streams and in graphs. test_gpu_problems.py has it over arrays of cases.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
import torch
from problems.placing import PLACES_OF_ROWS, odd_places, place
from problems.scaled_dynamic import ScaledDynamicCase, make
from problems.verdict import exact
from scaled_configs import DEVICE
from streams import (
    assert_repeats_are_equal,
    assert_replays_what_it_computes,
    assert_sees_its_producer,
    assert_two_streams_share_nothing,
)

import mixed_gemm

pytestmark = pytest.mark.gpu

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
CASE = ScaledDynamicCase(24, 200, 320, azp=True, bias=True)
# Of decoding, of a prompt, ragged ones, and where K is split.
SHAPES = (
    *((1, 4096, 4096), (16, 4096, 4096), (512, 1024, 2048), (1, 130, 9001)),
    *((3, 70, 40_000), (70_000, 8, 24), (33, 65, 777), (5, 64, 16_384)),
)


def fresh(a: torch.Tensor, seed: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(a.shape, generator=g).to(a.dtype).to(DEVICE)


@pytest.mark.parametrize("azp", (False, True))
@pytest.mark.parametrize("dtype", (F16, BF16, F32), ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equals_the_two_calls(shape, dtype, azp):
    for bias, spoiled in ((True, "none"), (False, "nan")):
        case = ScaledDynamicCase(*shape, dtype, azp=azp, bias=bias, spoiled=spoiled)
        problem = make(case, DEVICE, drawn_on=DEVICE)
        assert float(exact(problem.run(), problem.two_calls())) == 0


@pytest.mark.parametrize("dtype", (F16, BF16, F32), ids=str)
def test_is_within_the_bound_around_the_codes_of_the_reference(dtype):
    for azp in (False, True):
        problem = make(replace(CASE, dtype=dtype, azp=azp, spoiled="inf"), DEVICE)
        assert float(problem.verdict(problem.run())) <= 1


@pytest.mark.parametrize("m", (3, 40, 200))
@pytest.mark.parametrize("dtype", (F16, BF16, F32), ids=str)
def test_rows_far_from_zero_equal_the_two_calls(m, dtype):
    """Where 32 bits do not hold a zero point times a sum, beside rows where they do."""
    problem = make(ScaledDynamicCase(m, 300, 1024, dtype, azp=True, bias=True), DEVICE)
    offset = torch.tensor([1e4, 5.0, 0.0, -300.0, 60.0]).repeat(m)[:m, None].to(DEVICE)
    width = torch.tensor([1e-3, 1.0, 3.0, 0.0, 0.5]).repeat(m)[:m, None].to(DEVICE)
    problem.a = (offset + width * problem.a.float() / 16).to(dtype)
    problem.weight[0], problem.weight[1] = 127, -128
    problem.azp_adj = mixed_gemm.ops.azp_adjustment(problem.weight)
    problem.scale_b = problem.scale_b / 1024  # so that float16 holds the results
    _, _, azp = mixed_gemm.quantize_per_token(problem.a, symmetric=False)
    assert (azp.long() * problem.azp_adj.long().abs().max()).abs().max() > 2**31
    assert float(problem.verdict(problem.run())) <= 1


def test_views_equal_contiguous():
    problem = make(CASE, DEVICE)
    expected = problem.run()
    for name, a in odd_places(problem.a).items():
        assert torch.equal(problem.run(a), expected), name
    for name in PLACES_OF_ROWS[:-1]:  # all but the one that changes the values
        moved = replace(problem, weight=place(problem.weight, name))
        assert torch.equal(moved.run(), expected), name
    assert torch.equal(problem.run(problem.a.view(2, 3, 4, 320)), expected.view(2, 3, 4, 200))


def test_empty_products():
    for case in (replace(CASE, m=0), replace(CASE, n=0), replace(CASE, k=0)):
        problem = make(case, DEVICE)
        out = problem.run()
        assert out.shape == (case.m, case.n)
        assert case.k > 0 or torch.equal(out, problem.bias.expand(case.m, -1))


def test_repeats_are_bitwise_equal():
    assert_repeats_are_equal(make(ScaledDynamicCase(48, 512, 1024, BF16), DEVICE).run)


def test_side_stream_sees_its_producer():
    problem = make(ScaledDynamicCase(64, 512, 1024), DEVICE)
    assert_sees_its_producer(problem.run, problem.a)


def test_two_streams_share_no_workspace():
    problem = make(ScaledDynamicCase(64, 512, 4096, azp=True), DEVICE)
    assert_two_streams_share_nothing(problem.run, [fresh(problem.a, seed) for seed in range(2)])


@pytest.mark.parametrize("azp", (False, True))
@pytest.mark.parametrize("shape", ((1, 1024, 1024), (48, 256, 1024), (300, 512, 512)), ids=str)
def test_graph_capture_and_replay(shape, azp):
    problem = make(ScaledDynamicCase(*shape, BF16, azp=azp, bias=True), DEVICE)
    assert_replays_what_it_computes(problem.run, problem.a, functools.partial(fresh, problem.a))


def test_compiles_with_changing_batch():
    problem = make(CASE, DEVICE)
    rest = (problem.weight.t(), problem.scale_b, problem.azp_adj, problem.bias)
    compiled = torch.compile(
        lambda a: mixed_gemm.scaled_mm_dynamic(a, *rest),
        fullgraph=True,
        dynamic=True,
        backend="aot_eager",
    )
    for m in (2, 3, 70, 1):
        a = fresh(torch.empty(m, 320, dtype=F16), m)
        assert torch.equal(compiled(a), problem.run(a))


def test_second_device():
    if torch.cuda.device_count() < 2:
        pytest.skip("one CUDA device")
    first, second = make(CASE, "cuda:0"), make(CASE, "cuda:1")
    with torch.cuda.device(0):
        assert torch.equal(first.run().cpu(), second.run().cpu())


@pytest.mark.parametrize("azp", (False, True))
def test_opcheck(azp):
    p = make(replace(CASE, azp=azp), DEVICE)
    op = torch.ops.mixed_gemm.scaled_mm_dynamic.default
    torch.library.opcheck(op, (p.a, p.weight.t(), p.scale_b, p.azp_adj, p.bias))


def test_no_memory_is_torchs_error_and_leaves_a_working_gpu():
    free = torch.cuda.mem_get_info()[0]
    p = make(CASE, DEVICE)
    a = p.a[:1].expand(2 * free // 400, 320)
    with pytest.raises(torch.OutOfMemoryError, match="memory"):
        mixed_gemm.scaled_mm_dynamic(a, p.weight.t(), p.scale_b)
    p.run()
