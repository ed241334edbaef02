"""Valid but odd input gets the right answer on CUDA: views, offsets, empty, streams, graphs."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace
from re import fullmatch

import pytest
import torch
from configs import KERNELS, LISTED, SKINNY_CLUSTERS, SPLITS, WGMMA
from problems.gemm import Case, Problem, make
from problems.placing import views
from streams import (
    assert_repeats_are_equal,
    assert_replays_what_it_computes,
    assert_sees_its_producer,
    assert_two_streams_share_nothing,
)

import mixed_gemm

pytestmark = pytest.mark.gpu

CASE = Case(24, 200, 320, torch.float16, 4, 64, "sub", bias=True)
CONFIGS = [f"multistage_m16n128s6{split}" for split in SPLITS]
CONFIGS += [WGMMA[i % len(WGMMA)] + split for i, split in enumerate(SPLITS) if WGMMA]
CONFIGS += ["skinny_m8n32w8", "skinny_m16n64w8", *SKINNY_CLUSTERS, "dequantize_dense"]


@pytest.mark.parametrize("pre_scale", (False, True))
@pytest.mark.parametrize("config", CONFIGS)
def test_views_equal_contiguous(config, pre_scale):
    problem = make(replace(CASE, pre_scale=pre_scale), "cuda")
    expected = problem.call(config=config)
    for name, view in views(problem.a).items():
        out = problem.call(view, config)
        assert torch.equal(out.reshape(expected.shape), expected), name


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


def test_empty_batch_and_empty_k():
    problem = make(CASE, "cuda")
    assert problem.run(problem.a[:0]).shape == (0, CASE.n)
    assert problem.run(problem.a[:0].view(0, 3, CASE.k)).shape == (0, 3, CASE.n)
    bias = torch.randn(8, device="cuda", dtype=torch.float16)
    out = mixed_gemm.fpA_intB_gemm(
        torch.empty(3, 0, device="cuda", dtype=torch.float16),
        mixed_gemm.pack_weights(torch.empty(8, 0, device="cuda", dtype=torch.int8), 4),
        torch.empty(1, 8, device="cuda", dtype=torch.float16)[:0].new_empty((0, 8)),
        bias=bias,
        bits=4,
    )
    assert torch.equal(out, bias.expand(3, -1))


def test_strided_and_misaligned_scales():
    problem = make(CASE, "cuda")
    expected = problem.run()
    groups, n = problem.scales.shape
    for extra in (1, 8):
        wide = torch.full((groups, n + extra), float("nan"), dtype=torch.float16, device="cuda")
        wide[:, extra:] = problem.scales
        strided = mixed_gemm.fpA_intB_gemm(
            problem.a,
            problem.b_packed,
            wide[:, extra:],
            problem.zeros,
            problem.bias,
            bits=4,
            group_size=64,
        )
        assert torch.equal(strided, expected)


def test_output_canary():
    """Nothing is written outside d: the blocks around a fresh output keep their pattern."""
    for n, m in ((72, 5), (65, 17), (200, 130)):
        problem = make(Case(m, n, 256, torch.float16, 4, 64), "cuda")
        for kernel in KERNELS:
            arena = torch.full((1 << 20,), 0x7E7E, dtype=torch.int16, device="cuda")
            before = arena.clone()
            problem.call(config=kernel)
            assert torch.equal(arena, before)


@pytest.mark.parametrize("config", CONFIGS)
def test_repeats_are_bitwise_equal(config):
    problem = make(Case(48, 512, 1024, torch.bfloat16, 4, 128, "sub"), "cuda")
    assert_repeats_are_equal(functools.partial(problem.call, config=config), 200)


@pytest.mark.parametrize("config", CONFIGS[:-1])
def test_rows_do_not_depend_on_each_other(config):
    problem = make(CASE, "cuda")
    whole = problem.call(config=config)
    poisoned = problem.a.clone()
    poisoned[3] = float("nan")
    out = problem.call(poisoned, config)
    keep = torch.arange(CASE.m, device="cuda") != 3
    assert torch.equal(out[keep], whole[keep])
    assert out[3].isnan().all()


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


def test_side_stream_sees_its_producer():
    problem = make(Case(64, 512, 1024, torch.float16, 4, 128), "cuda")
    assert_sees_its_producer(problem.call, problem.a)


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


@pytest.mark.parametrize(
    "config", ("multistage_m64n128s4_streamk3", *(f"{kernel}_streamk2" for kernel in WGMMA[:1]))
)
def test_two_streams_share_no_workspace(config):
    problem = make(Case(64, 512, 4096, torch.float16, 4, 128), "cuda")
    inputs = [torch.randn_like(problem.a) for _ in range(2)]
    assert_two_streams_share_nothing(lambda a: problem.call(a, config), inputs)


def random_like(a: torch.Tensor, seed: int) -> torch.Tensor:
    torch.manual_seed(seed)
    return torch.randn_like(a)


@pytest.mark.parametrize("config", CONFIGS)
def test_graph_capture_and_replay(config):
    problem = make(
        Case(48, 256, 1024, torch.float16, 4, 128, "sub", bias=True, pre_scale=True), "cuda"
    )
    assert_replays_what_it_computes(
        lambda a: problem.call(a, config), problem.a, functools.partial(random_like, problem.a)
    )


def test_second_device():
    if torch.cuda.device_count() < 2:
        pytest.skip("one CUDA device")
    first, second = make(CASE, "cuda:0"), make(CASE, "cuda:1")
    with torch.cuda.device(0):
        assert torch.equal(first.run().cpu(), second.run().cpu())


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
