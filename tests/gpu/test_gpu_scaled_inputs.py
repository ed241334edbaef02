"""8-bit operands that come late, in batches, or are large; what every op keeps is in
test_gpu_contract.py."""

from __future__ import annotations

import itertools

import pytest
import torch
from problems.scaled import ScaledCase, ScaledProblem, make
from scaled_configs import DEVICE, FLOAT8, LARGE, MIDDLE, SMALL, candidates

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

    expected = chain(x)
    late, stream = torch.full_like(x, float("nan")), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)  # about 10 ms: a kernel on the wrong stream would read NaN
        late.copy_(x)
        out = chain(late)
    stream.synchronize()
    assert torch.equal(out, expected)


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
