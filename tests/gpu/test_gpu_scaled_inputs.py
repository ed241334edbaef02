"""8-bit operands in odd places: views, offsets, empty, streams, graphs, devices, compilers."""

from __future__ import annotations

import functools
import itertools

import pytest
import torch
from problems.placing import PLACES_OF_ROWS, odd_places, place
from problems.scaled import ScaledCase, ScaledProblem, make, opcheck
from scaled_configs import DEVICE, FLOAT8, KERNELS, LARGE, MIDDLE, SMALL, candidates
from streams import (
    assert_repeats_are_equal,
    assert_replays_what_it_computes,
    assert_sees_its_producer,
    assert_two_streams_share_nothing,
)

import mixed_gemm

pytestmark = pytest.mark.gpu

CASE = ScaledCase(24, 200, 320, azp="per_row", bias=True)
SPLITS = ("", "_streamk1", "_streamk3", "_parallel2")


def configs(operand: torch.dtype = torch.int8) -> list[str]:
    """Three tiles, every way to split K, and the clusters where the GPU has them."""
    listed = candidates(48, 512, 1024, operand)
    tiles = [tile for tile in (SMALL, MIDDLE, LARGE) if tile in listed]
    clusters = [f"{tile}_cluster2" for tile in tiles]
    return [t + split for t in tiles for split in SPLITS] + [c for c in clusters if c in listed]


def with_new_rows(problem: ScaledProblem, seed: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randint(-128, 128, problem.a.shape, generator=g, dtype=torch.int8).to(DEVICE)


@pytest.mark.parametrize("k", (320, 321))
def test_views_equal_contiguous(k):
    problem = make(ScaledCase(24, 200, k, azp="per_row", bias=True), DEVICE)
    for config in configs():
        expected = problem.run(config=config)
        for name, a in odd_places(problem.a).items():
            assert torch.equal(problem.run(a, config), expected), (config, name)
        for name in PLACES_OF_ROWS[:-1]:  # all but the one that changes the values
            weight = place(problem.weight, name)
            out = problem.run(config=config, b=weight.t())
            assert torch.equal(out, expected), (config, name)


def test_batched_expanded_and_one_dimensional_rows():
    """The configuration is pinned; sums of integers are exact, so another would do."""
    p = make(CASE, DEVICE)
    one = p.scale_a[0]
    for config in configs():
        whole = p.run(config=config)
        batched = p.run(
            p.a.view(2, 12, -1).transpose(0, 1),
            config,
            scale_a=p.scale_a.view(2, 12, 1).transpose(0, 1),
            azp=p.azp.view(2, 12, 1).transpose(0, 1),
        )
        assert torch.equal(batched.transpose(0, 1).reshape(whole.shape), whole), config
        row = p.run(p.a[0], config, scale_a=one, azp=p.azp[0])
        assert torch.equal(row, whole[0]), config
        expanded = p.run(p.a[:1].expand(5, -1), config, scale_a=one, azp=p.azp[:1].expand(5, -1))
        assert torch.equal(expanded, row.expand(5, -1)), config


def test_empty_products():
    p = make(CASE, DEVICE)
    rows = {"scale_a": p.scale_a[:0], "azp": p.azp[:0]}
    assert p.run(p.a[:0], **rows).shape == (0, CASE.n)
    empty = p.run(p.a[:0].view(0, 3, CASE.k), scale_a=p.scale_b[0], azp=p.azp[:0])
    assert empty.shape == (0, 3, CASE.n)
    columns = {"scale_b": p.scale_b[:0], "azp_adj": p.azp_adj[:0], "bias": p.bias[:0]}
    assert p.run(b=p.b[:, :0], **columns).shape == (CASE.m, 0)
    no_k = make(ScaledCase(3, 8, 0, bias=True), DEVICE)
    assert torch.equal(no_k.run(), no_k.bias.expand(3, -1))


def test_output_canary():
    """Nothing is written outside d: memory around a fresh output keeps its pattern."""
    for m, n in ((5, 72), (17, 65), (130, 200)):
        for out_dtype in (torch.float16, torch.float32):
            problem = make(ScaledCase(m, n, 256, out_dtype), DEVICE)
            for kernel in KERNELS:
                if kernel not in candidates(m, n, 256):
                    continue
                arena = torch.full((1 << 20,), 0x7E7E, dtype=torch.int16, device=DEVICE)
                before = arena.clone()
                problem.run(config=kernel)
                assert torch.equal(arena, before), kernel


@pytest.mark.parametrize("operand", (torch.int8, FLOAT8), ids=str)
def test_repeats_are_bitwise_equal(operand):
    if operand == FLOAT8 and torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("no float8 tensor cores before 8.9")
    problem = make(ScaledCase(48, 512, 1024, torch.bfloat16, operand), DEVICE)
    for config in configs(operand):
        assert_repeats_are_equal(functools.partial(problem.run, config=config))


def test_rows_do_not_depend_on_each_other():
    problem = make(CASE, DEVICE)
    changed = problem.a.clone()
    changed[3] = 127
    keep = torch.arange(CASE.m, device=DEVICE) != 3
    for config in configs():
        whole, out = problem.run(config=config), problem.run(changed, config)
        assert torch.equal(out[keep], whole[keep]) and not torch.equal(out[3], whole[3]), config


def test_side_stream_sees_its_producer():
    """Also the producer of the scales, and through the quantizers."""
    x = torch.randn(64, 1024).half().to(DEVICE)
    problem = make(ScaledCase(64, 512, 1024), DEVICE)

    def chain(x: torch.Tensor) -> torch.Tensor:
        q, scale, azp = mixed_gemm.quantize_per_token(x, symmetric=False)
        adjustment = mixed_gemm.ops.azp_adjustment(problem.weight)
        return problem.run(q, scale_a=scale) + mixed_gemm.scaled_mm_azp(
            q, problem.b, scale, problem.scale_b, adjustment, azp, out_dtype=torch.float16
        )

    assert_sees_its_producer(chain, x)


def test_reads_what_the_kernel_before_writes():
    """Kernels start while the one before drains: a slow one makes the activations of the next one,
    then its weights."""
    slow = make(ScaledCase(64, 256, 1 << 16), DEVICE)
    inputs = [with_new_rows(slow, seed) for seed in range(4)]
    second = make(ScaledCase(64, 64, 512), DEVICE)

    def product(p: ScaledProblem, config: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """ScaledProblem.run() without a kernel of torch in between."""
        scales = {"scale_a": p.scale_a, "scale_b": p.scale_b, "azp_adj": None, "azp": None}
        options = {"bias": None, "out_dtype": torch.float16, "config": config}
        return torch.ops.mixed_gemm._scaled_mm_config(a=a, b=b, **scales, **options)

    def outputs(config: str, wait: bool) -> list[torch.Tensor]:
        results = []
        torch.cuda._sleep(4_000_000)  # 2 ms: all kernels are launched by then
        for a, of_tokens in itertools.product(inputs, (True, False)):
            made = product(slow, config, a, slow.b)  # all in the same memory, one after the other
            if wait:
                torch.cuda.synchronize()
            elements = made.view(torch.int8)
            operands = (elements, second.b) if of_tokens else (second.a, elements.t())
            results.append(product(second, config, *operands))
            del made, elements, operands
        return results

    for config in configs():
        pairs = zip(outputs(config, wait=False), outputs(config, wait=True), strict=True)
        assert all(torch.equal(x, y) for x, y in pairs), config


def test_two_streams_share_no_workspace():
    problem = make(ScaledCase(64, 512, 4096), DEVICE)
    inputs = [with_new_rows(problem, seed) for seed in range(2)]
    for config in (f"{MIDDLE}_streamk3", f"{SMALL}_parallel4"):
        run = functools.partial(problem.run, config=config)
        assert_two_streams_share_nothing(run, inputs)


def test_graph_capture_and_replay():
    problem = make(ScaledCase(48, 256, 1024, azp="per_row", bias=True), DEVICE)
    fresh = functools.partial(with_new_rows, problem)
    for config in configs():
        run = functools.partial(problem.run, config=config)
        assert_replays_what_it_computes(run, problem.a, fresh)


def test_graph_of_a_layer_with_rounding():
    """The whole of W8A8: round the rows, multiply; int8 and float8."""
    x = torch.randn(32, 512).half().to(DEVICE)
    problem = make(ScaledCase(32, 256, 512), DEVICE)
    fp8 = make(ScaledCase(32, 256, 512, operand=FLOAT8), DEVICE)
    has_fp8 = torch.cuda.get_device_capability() >= (8, 9)

    def layer() -> tuple[torch.Tensor, ...]:
        q, scale, _ = mixed_gemm.quantize_per_token(x)
        per_tensor = mixed_gemm.quantize_per_tensor(x, scale[:1])
        outs = (problem.run(q, scale_a=scale), problem.run(per_tensor, scale_a=scale[:1]))
        return (*outs, fp8.run(x.to(FLOAT8), scale_a=scale)) if has_fp8 else outs

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        layer()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        captured = layer()
    for _ in range(5):
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(o, e) for o, e in zip(captured, layer(), strict=True))


def test_second_device():
    if torch.cuda.device_count() < 2:
        pytest.skip("one CUDA device")
    first, second = make(CASE, "cuda:0"), make(CASE, "cuda:1")
    x = torch.randn(5, 64).half()
    with torch.cuda.device(0):
        assert torch.equal(first.run().cpu(), second.run().cpu())
        for q, other in zip(
            mixed_gemm.quantize_per_token(x.to("cuda:1"), symmetric=False),
            mixed_gemm.quantize_per_token(x, symmetric=False),
            strict=True,
        ):
            assert q.device == torch.device("cuda:1") and torch.equal(q.cpu(), other)


@pytest.mark.parametrize("azp", ("none", "folded", "per_row"))
def test_opcheck(azp):
    opcheck(make(ScaledCase(azp=azp, bias=True), DEVICE))


def test_output_beyond_two_to_the_31_elements():
    m, n, k = 70_000, 32_000, 64
    g = torch.Generator(device=DEVICE).manual_seed(0)
    a, weight = (
        torch.randint(-128, 128, (rows, k), dtype=torch.int8, device=DEVICE, generator=g)
        for rows in (m, n)
    )
    scale = torch.full((1,), 2.0**-10, device=DEVICE)
    for config in (LARGE, f"{MIDDLE}_streamk1"):
        out = torch.ops.mixed_gemm._scaled_mm_config(
            a, weight.t(), scale, scale, None, None, None, out_dtype=torch.float16, config=config
        )
        for rows in (slice(0, 4), slice(m // 2, m // 2 + 4), slice(m - 4, m)):
            exact = (a[rows].double() @ weight.double().t()) * 2.0**-20
            assert torch.equal(out[rows], exact.half()), config  # a power of two: one rounding
        del out
