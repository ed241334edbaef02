"""scaled_mm_dynamic on CUDA: the bits of quantize_per_token and scaled_mm, whose launches one call
makes. test_gpu_problems.py has it over arrays of cases, test_gpu_contract.py in odd places, on
streams and in graphs.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from problems.scaled_dynamic import ScaledDynamicCase, make
from problems.verdict import exact
from scaled_configs import DEVICE

import mixed_gemm

pytestmark = pytest.mark.gpu

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
CASE = ScaledDynamicCase(24, 200, 320, azp=True, bias=True)
# Of decoding, of a prompt, ragged ones, and where K is split.
SHAPES = (
    *((1, 4096, 4096), (16, 4096, 4096), (512, 1024, 2048), (1, 130, 9001)),
    *((3, 70, 40_000), (70_000, 8, 24), (33, 65, 777), (5, 64, 16_384)),
)


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


def test_no_memory_is_torchs_error_and_leaves_a_working_gpu():
    free = torch.cuda.mem_get_info()[0]
    p = make(CASE, DEVICE)
    a = p.a[:1].expand(2 * free // 400, 320)
    with pytest.raises(torch.OutOfMemoryError, match="memory"):
        mixed_gemm.scaled_mm_dynamic(a, p.weight.t(), p.scale_b)
    p.run()
