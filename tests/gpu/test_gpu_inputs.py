"""What fpA_intB_gemm alone must stand on CUDA: rows that repeat, stale flags, a kernel before it
that still drains, results of many elements. What every op keeps is in test_gpu_contract.py."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace
from re import fullmatch

import pytest
import torch
from configs import LISTED, SKINNY_CLUSTERS, SPLITS, WGMMA
from problems.gemm import Case, Problem, make

import mixed_gemm

pytestmark = pytest.mark.gpu

CASE = Case(24, 200, 320, torch.float16, 4, 64, "sub", bias=True)
CONFIGS = [f"multistage_m16n128s6{split}" for split in SPLITS]
CONFIGS += [WGMMA[i % len(WGMMA)] + split for i, split in enumerate(SPLITS) if WGMMA]
CONFIGS += ["skinny_m8n32w8", "skinny_m16n64w8", *SKINNY_CLUSTERS, "dequantize_dense"]


@pytest.mark.parametrize("config", CONFIGS[:-1])
def test_expanded_and_one_dimensional_rows(config):
    """The configuration is pinned, and so is the number of rows: for fewer of them another one, or
    another mode of a skinny one, may add in another order."""
    problem = make(CASE, "cuda")
    row = problem.a[:1]
    expanded = problem.call(row.expand(5, -1), config)
    assert torch.equal(expanded, problem.call(row.repeat(5, 1), config))
    assert torch.equal(expanded, expanded[:1].expand(5, -1))
    assert torch.equal(problem.call(row[0], config), problem.call(row, config)[0])


@pytest.mark.parametrize("config", [c for c in CONFIGS if "_streamk" in c])
def test_flags_that_are_set_before_the_call_are_zeroed(config):
    """Freed blocks of the allocator hold ones, as the flags of a call before do."""
    problem = make(Case(48, 512, 4096, torch.float16, 4, 128, "sub"), "cuda")
    first = problem.call(config=config)
    for _ in range(20):
        blocks = [
            torch.ones(size // 4, dtype=torch.int32, device="cuda")
            for size in (512, 1024, 2048, 4096)
            for _ in range(16)
        ]
        del blocks
        assert torch.equal(problem.call(config=config), first)


@functools.cache
def producer_and_consumers() -> tuple[Problem, Problem, Problem]:
    """The outputs of the first one, 64 x 5120 16-bit numbers, are the tokens of the second one, or
    the bytes of the packed weight of the third."""
    cases = ((5120, 1 << 13), (2560, 5120), (2560, 512))  # 2560: clusters that start early
    problems = [make(Case(64, n, k, torch.float16, 4, 128), "cuda") for n, k in cases]
    return problems[0], problems[1], problems[2]


@pytest.mark.parametrize(
    "config", [*CONFIGS, *(c for c in LISTED if fullmatch("multistage_m16.*_cluster2", c))]
)
def test_reads_what_the_kernel_before_writes(config):
    """Kernels start while the one before drains: a slow one makes the activations of the next one,
    then its weights."""
    slow, of_tokens, of_weights = producer_and_consumers()
    inputs = [torch.randn_like(slow.a) for _ in range(4)]

    def outputs(wait: bool) -> list[torch.Tensor]:
        results = []
        torch.cuda._sleep(4_000_000)  # 2 ms: all kernels are launched by then
        for a, use in itertools.product(inputs, ("tokens", "weights")):
            made = slow.call(a, config)  # all in the same memory, one after the other
            if wait:
                torch.cuda.synchronize()
            if use == "tokens":
                results.append(of_tokens.call(made, config))
            else:
                words = made.view(torch.uint8).view_as(of_weights.b_packed)
                results.append(replace(of_weights, b_packed=words).call(config=config))
            del made
        return results

    assert all(map(torch.equal, outputs(wait=False), outputs(wait=True)))


def test_output_beyond_two_to_the_31_elements():
    m, n, k = 70_000, 32_000, 64
    g = torch.Generator(device="cuda").manual_seed(0)
    a = torch.randn(m, k, device="cuda", dtype=torch.float16, generator=g)
    q = torch.randint(-8, 8, (n, k), device="cuda", dtype=torch.int8, generator=g)
    scales = torch.rand(1, n, device="cuda", dtype=torch.float16, generator=g) * 0.1
    packed = mixed_gemm.pack_weights(q, 4)
    for config in ("multistage_m128n256s3", *WGMMA[-1:], "dequantize_dense"):
        out = torch.ops.mixed_gemm.fpA_intB_gemm_config(a, packed, scales, bits=4, config=config)
        for rows in (slice(0, 4), slice(m - 4, m)):
            expected = a[rows].double() @ (q.double() * scales.double().t()).t()
            assert (out[rows].double() - expected).abs().max() < 0.02 * expected.abs().max()
        del out
