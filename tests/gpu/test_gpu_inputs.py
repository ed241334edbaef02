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
from test_gpu_gemm import run_config

import mixed_gemm

pytestmark = pytest.mark.gpu

CASE = Case(24, 200, 320, torch.float16, 4, 64, "sub", bias=True)
CONFIGS = [f"multistage_m16n128s6{split}" for split in SPLITS]
CONFIGS += [WGMMA[i % len(WGMMA)] + split for i, split in enumerate(SPLITS) if WGMMA]
CONFIGS += ["skinny_m8n32w8", "skinny_m16n64w8", *SKINNY_CLUSTERS, "dequantize_dense"]


def views(a: torch.Tensor) -> dict[str, torch.Tensor]:
    """The same values in odd places."""
    m, k = a.shape
    wide = torch.full((m, k + 40), float("nan"), dtype=a.dtype, device=a.device)
    wide[:, 8 : 8 + k] = a
    flat = torch.full((m * k + 1,), float("nan"), dtype=a.dtype, device=a.device)
    flat[1:] = a.flatten()
    every_second = torch.full((2 * m, k), float("nan"), dtype=a.dtype, device=a.device)
    every_second[::2] = a
    odd = torch.full((m, k + 3), float("nan"), dtype=a.dtype, device=a.device)
    odd[:, 1 : 1 + k] = a
    return {
        "leading stride": wide[:, 8 : 8 + k],
        "odd storage offset": flat[1:].view(m, k),
        "every second row": every_second[::2],
        "odd row stride": odd[:, 1 : 1 + k],
        "transposed": a.t().contiguous().t(),
        "3-d": a.view(2, m // 2, k),
        "3-d transposed": a.view(2, m // 2, k).transpose(0, 1).contiguous().transpose(0, 1),
    }


@pytest.mark.parametrize("pre_scale", (False, True))
@pytest.mark.parametrize("config", CONFIGS)
def test_views_equal_contiguous(config, pre_scale):
    problem = make(replace(CASE, pre_scale=pre_scale), "cuda")
    expected = run_config(problem, config)
    for name, view in views(problem.a).items():
        out = run_config(problem, config, view)
        assert torch.equal(out.reshape(expected.shape), expected), name


@pytest.mark.parametrize("config", CONFIGS[:-1])
def test_expanded_and_one_dimensional_rows(config):
    """The configuration is pinned, and so is the number of rows: for fewer of them another one, or
    another mode of a skinny one, may add in another order."""
    problem = make(CASE, "cuda")
    row = problem.a[:1]
    expanded = run_config(problem, config, row.expand(5, -1))
    assert torch.equal(expanded, run_config(problem, config, row.repeat(5, 1)))
    assert torch.equal(expanded, expanded[:1].expand(5, -1))
    assert torch.equal(run_config(problem, config, row[0]), run_config(problem, config, row)[0])


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
            run_config(problem, kernel)
            assert torch.equal(arena, before)


@pytest.mark.parametrize("config", CONFIGS)
def test_repeats_are_bitwise_equal(config):
    problem = make(Case(48, 512, 1024, torch.bfloat16, 4, 128, "sub"), "cuda")
    first = run_config(problem, config)
    for _ in range(200):
        assert torch.equal(run_config(problem, config), first)


@pytest.mark.parametrize("config", CONFIGS[:-1])
def test_rows_do_not_depend_on_each_other(config):
    problem = make(CASE, "cuda")
    whole = run_config(problem, config)
    poisoned = problem.a.clone()
    poisoned[3] = float("nan")
    out = run_config(problem, config, poisoned)
    keep = torch.arange(CASE.m, device="cuda") != 3
    assert torch.equal(out[keep], whole[keep])
    assert out[3].isnan().all()


@pytest.mark.parametrize("config", [c for c in CONFIGS if "_streamk" in c])
def test_flags_that_are_set_before_the_call_are_zeroed(config):
    """Freed blocks of the allocator hold ones, as the flags of a call before do."""
    problem = make(Case(48, 512, 4096, torch.float16, 4, 128, "sub"), "cuda")
    first = run_config(problem, config)
    for _ in range(20):
        blocks = [
            torch.ones(size // 4, dtype=torch.int32, device="cuda")
            for size in (512, 1024, 2048, 4096)
            for _ in range(16)
        ]
        del blocks
        assert torch.equal(run_config(problem, config), first)


def test_side_stream_sees_its_producer():
    problem = make(Case(64, 512, 1024, torch.float16, 4, 128), "cuda")
    expected = problem.run()
    stream = torch.cuda.Stream()
    source = problem.a.clone()
    a = torch.full_like(source, float("nan"))
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)  # about 10 ms: a kernel on the wrong stream would read NaN
        a.copy_(source)
        out = problem.run(a)
    stream.synchronize()
    assert torch.equal(out, expected)


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
            made = run_config(slow, config, a)  # all in the same memory, one after the other
            if wait:
                torch.cuda.synchronize()
            if use == "tokens":
                results.append(run_config(of_tokens, config, made))
            else:
                words = made.view(torch.uint8).view_as(of_weights.b_packed)
                results.append(run_config(replace(of_weights, b_packed=words), config))
            del made
        return results

    assert all(map(torch.equal, outputs(wait=False), outputs(wait=True)))


@pytest.mark.parametrize(
    "config", ("multistage_m64n128s4_streamk3", *(f"{kernel}_streamk2" for kernel in WGMMA[:1]))
)
def test_two_streams_share_no_workspace(config):
    problem = make(Case(64, 512, 4096, torch.float16, 4, 128), "cuda")
    inputs = [torch.randn_like(problem.a) for _ in range(2)]
    expected = [run_config(problem, config, a) for a in inputs]
    streams = [torch.cuda.Stream() for _ in inputs]
    torch.cuda.synchronize()
    for _ in range(100):
        outs = []
        for stream, a in zip(streams, inputs, strict=True):
            with torch.cuda.stream(stream):
                outs.append(run_config(problem, config, a))
        torch.cuda.synchronize()
        assert all(torch.equal(o, e) for o, e in zip(outs, expected, strict=True))


@pytest.mark.parametrize("config", CONFIGS)
def test_graph_capture_and_replay(config):
    problem = make(
        Case(48, 256, 1024, torch.float16, 4, 128, "sub", bias=True, pre_scale=True), "cuda"
    )
    a = problem.a.clone()
    run_config(problem, config, a)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run_config(problem, config, a)
    for seed in range(20):
        torch.manual_seed(seed)
        fresh = torch.randn_like(a)
        a.copy_(fresh)
        out.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, run_config(problem, config, fresh))


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
