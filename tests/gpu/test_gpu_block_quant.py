"""block_quant_gemm on CUDA: the rounding of the activations bit for bit, every tile and split under
the bound, two launches."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from problems.block import DTYPES, BlockCase, BlockProblem, configs_of, make
from problems.placing import odd_places
from support.block_rows import ROWS, rounded

from mixed_gemm import reference
from mixed_gemm.ops import block_sums
from mixed_gemm.ops.problem import ACTIVATIONS, num_groups
from mixed_gemm.reference import conv as reference_conv

pytestmark = pytest.mark.gpu

DEVICE = "cuda"

BASE = BlockCase()
# Blocks that end with lines of 128 k, within them, across them; one block; ragged K, N and M.
CASES = (
    replace(BASE, m=1, n=64, k=512, block_size=128),
    replace(BASE, m=16, n=200, k=1000, block_size=128),
    replace(BASE, m=17, n=65, k=777, block_size=-1, offsets=False),
    replace(BASE, m=33, n=129, k=640, block_size=64),
    replace(BASE, m=40, n=72, k=512, block_size=32),
    replace(BASE, m=65, n=1, k=416, block_size=96),
    replace(BASE, m=70, n=260, k=1920, block_size=640),
    replace(BASE, m=5, n=136, k=500, block_size=16),
    replace(BASE, m=130, n=100, k=333, block_size=48),
    replace(BASE, m=129, n=257, k=1280, block_size=256),
    replace(BASE, m=300, n=520, k=2048, block_size=128),
    replace(BASE, m=3, n=7, k=1, block_size=-1),
    replace(BASE, m=64, n=128, k=17, block_size=16, bias=False),
    replace(BASE, m=2, n=64, k=9000, block_size=4096),
)


def judge(problem: BlockProblem) -> Callable[[torch.Tensor], float]:
    """Output -> its worst error over the bound; the reference is computed once."""
    arguments, options = problem.arguments(), problem.options()
    exact = reference_conv.block_quant_gemm(*arguments, **options)
    bound = reference_conv.block_error_bound(*arguments, **options)
    return lambda out: reference.error_ratio(out, exact, bound)


def ids(case: BlockCase) -> str:
    return f"{case.m}x{case.n}x{case.k}-b{case.block_size}"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=ids)
def test_every_kernel_and_split(record, case, dtype):
    problem = make(replace(case, dtype=dtype), DEVICE)
    ratio = judge(problem)
    for config in configs_of(case, DEVICE):
        record(f"{config}-{str(dtype)[6:]}", ratio(problem.run(config=config)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=ids)
def test_given_sums_change_no_bit(case, dtype):
    problem = make(replace(case, dtype=dtype), DEVICE)
    sums = problem.sums()
    assert torch.equal(block_sums(problem.weight.t(), case.block_size), sums)
    places = {"contiguous": sums, **odd_places(sums)}
    for config in [None, *configs_of(case, DEVICE)]:
        expected = problem.run(config=config)
        for place_of_sums in ("contiguous", "odd_offset"):
            out = problem.run(config=config, b_sums=places[place_of_sums])
            assert torch.equal(out, expected), (config, place_of_sums)
    for name, view in places.items():
        assert torch.equal(problem.run(b_sums=view), problem.run()), name


@pytest.mark.parametrize("block_size", (-1, 128, 256))
def test_given_sums_are_what_is_added(block_size):
    """Where blocks end with lines, whose kernels do not sum."""
    case = BlockCase(20, 200, 640, torch.float32, block_size, bias=False)
    problem = make(case, DEVICE)
    g = torch.Generator().manual_seed(2)
    sums = problem.sums()
    more = torch.randint(-999, 1000, sums.shape, generator=g).int().to(DEVICE)
    offsets = reference_conv.block_quantize(problem.a, block_size)[2]
    added = offsets.double() @ (problem.scale_b.double() * more)
    for config in configs_of(case, DEVICE):
        out = problem.run(config=config, b_sums=sums + more).double() - problem.run(config=config)
        assert torch.allclose(out, added, rtol=1e-3, atol=1e-2), config


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("block_size", (-1, 16, 32, 48, 64, 80, 112, 128, 160, 256, 512))
def test_selected_kernel_for_every_block_size(record, block_size, dtype):
    for m in (1, 2, 9, 16, 17, 64, 100, 300):
        problem = make(
            replace(BASE, m=m, n=328, k=1040, block_size=block_size, dtype=dtype), DEVICE
        )
        record(f"block-b{block_size}", problem.ratio(problem.run()))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_activation_and_bias(record, dtype):
    for activation in ACTIVATIONS:
        for bias in (False, True):
            case = BlockCase(40, 136, 256, dtype, 64, bias=bias, activation=activation)
            problem = make(case, DEVICE)
            ratio = judge(problem)
            for config in configs_of(case, DEVICE)[:8]:
                record(f"{activation}-{config}", ratio(problem.run(config=config)))


def quantized(a: torch.Tensor, block_size: int) -> tuple[torch.Tensor, ...]:
    """q, scale and offset as the first launch leaves them, in the form of block_quantize; its sums
    of blocks."""
    k = a.shape[-1]
    groups = num_groups(k, block_size)
    scales = torch.ones(groups, 1, dtype=a.dtype, device=a.device)
    weight = torch.zeros(1, k, dtype=torch.int8, device=a.device)
    q, rows = torch.ops.mixed_gemm._block_quantize(
        a, weight.t(), scales, scales, block_size=block_size
    )
    if groups > 1:  # blocks are padded to 32, the last one ends with the row
        padded = -(-block_size // 32) * 32
        blocks = [q[:, i * padded : i * padded + block_size] for i in range(groups)]
        assert all(
            not q[:, i * padded + block_size : (i + 1) * padded].any() for i in range(groups - 1)
        )
        q = torch.cat(blocks, dim=1)
    rows = rows.permute(1, 0, 2)
    return q[:, :k], rows[..., 0], rows[..., 1], rows[..., 2]


def assert_same_bits(ours: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    torch.testing.assert_close(
        ours.cpu(), expected, rtol=0, atol=0, equal_nan=True, msg=lambda m: f"{what}: {m}"
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("block_size", (-1, 16, 32, 48, 128, 400, 1024, 1040))
def test_rounding_is_that_of_the_cpu_bit_for_bit(block_size, dtype):
    g = torch.Generator().manual_seed(0)
    # 9000: too long for the registers of a thread block.
    for k in (1040, 1041, 2100, 9000):
        a = torch.randn(37, k, generator=g) * torch.randn(37, 1, generator=g).exp()
        a += torch.randn(37, 1, generator=g)
        a[0], a[1], a[2, ::3] = 0, -2.5, 1e4
        a[3, 5], a[4, k - 1], a[5, k // 2] = float("nan"), float("inf"), float("-inf")
        a = a.to(dtype)
        views = {
            "contiguous": a.to(DEVICE),
            "odd": torch.cat((a[:, :3], a), dim=1).to(DEVICE)[:, 3:],
            "expanded": a[6:7].to(DEVICE).expand(5, -1),
        }
        for name, view in views.items():
            q, scale, offset, total = quantized(view, block_size)
            expected = reference_conv.block_quantize(view.cpu(), block_size)
            for ours, exact, part in zip((q, scale, offset), expected, "qso", strict=True):
                assert_same_bits(ours, exact, f"{part}, K={k}, {name}")
            # The sums of blocks: three roundings of numbers of the size of their two parts.
            size = k if block_size == -1 else block_size
            ends = zip(torch.split(q.double(), size, dim=1), scale.T, offset.T, strict=True)
            for i, (block, s, o) in enumerate(ends):
                parts = s.double() * block.sum(1), o.double() * block.shape[1]
                room = 3 * 2.0**-24 * (parts[0].abs() + parts[1].abs()) + 2.0**-140
                error = (total[:, i].double() - parts[0] - parts[1]).abs()
                assert ((error <= room) | parts[0].isnan()).all(), (i, k, name)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("block_size", (-1, 16, 48))
def test_product_with_the_identity_reads_the_rounded_rows_back(rows, block_size):
    """Exactly, whatever the configuration: every other product is 0."""
    a = ROWS[rows]().float()
    k = a.shape[1]
    expected = rounded(a, block_size)
    ones = torch.ones(num_groups(k, block_size), k, device=DEVICE)
    eye = torch.eye(k, dtype=torch.int8, device=DEVICE).t()
    arguments = (a.to(DEVICE), eye, ones, torch.zeros_like(ones))
    for config in configs_of(BlockCase(len(a), k, k, torch.float32, block_size), DEVICE):
        out = torch.ops.mixed_gemm._block_quant_gemm_config(
            *arguments, block_size=block_size, config=config
        )
        assert torch.equal(out.cpu(), expected), config


@pytest.mark.parametrize("block_size", (32, 64, 128, 256))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_integer_lattice_is_exact(dtype, block_size):
    """Blocks of a span -128..127, so that their scale is 1 and their offset 0; scales of b are a
    power of two: all sums are exact in fp32."""
    m, n, k = 70, 200, 1024
    g = torch.Generator().manual_seed(1)
    a = torch.randint(-128, 128, (m, k), generator=g)
    a[:, 0::32], a[:, 1::32] = -128, 127
    a = a.to(dtype).to(DEVICE)
    weight = torch.randint(-128, 128, (n, k), generator=g, dtype=torch.int8).to(DEVICE)
    scale = torch.full((k // block_size, n), 2.0**-7, dtype=dtype, device=DEVICE)
    offset = torch.randint(-8, 9, scale.shape, generator=g).to(dtype).to(DEVICE)
    wide = (x.double().repeat_interleave(block_size, dim=0) for x in (scale, offset))
    scales, offsets = wide
    exact = (a.double() @ (weight.t().double() * scales + offsets)).to(dtype)
    for config in configs_of(BlockCase(m, n, k, dtype, block_size), DEVICE):
        out = torch.ops.mixed_gemm._block_quant_gemm_config(
            a, weight.t(), scale, offset, block_size=block_size, config=config
        )
        assert torch.equal(out, exact), config


def test_cpu_and_cuda_agree(record):
    for dtype in DTYPES:
        for block_size in (-1, 48, 128):
            case = BlockCase(33, 130, 384, dtype, block_size, activation="gelu")
            on_cpu, on_gpu = make(case), make(case, DEVICE)
            record("block-cpu", on_cpu.ratio(on_cpu.run()))
            record("block-cuda", on_cpu.ratio(on_gpu.run().cpu()))


VIEWED = BlockCase(24, 200, 320, block_size=64)


def test_expanded_and_one_dimensional_rows():
    problem = make(VIEWED, DEVICE)
    row = problem.run(problem.a[:1], "block_m16n64s6")
    assert torch.equal(problem.run(problem.a[0], "block_m16n64s6"), row[0])
    expanded = problem.run(problem.a[:1].expand(5, -1), "block_m16n64s6")
    assert torch.equal(expanded, row.expand(5, -1))


@pytest.mark.parametrize("block_size", (48, 64, 128, -1))
def test_two_launches(block_size):
    """Whatever is asked for: padded blocks, stream-K, B at an odd place, sums given."""
    problem = make(BlockCase(33, 200, 640, block_size=block_size), DEVICE)
    odd = torch.zeros(200, 641, dtype=torch.int8, device=DEVICE)[:, 1:].t()
    columns, sums = (problem.weight.t(), odd), (None, problem.sums())
    calls = list(itertools.product(configs_of(problem.case, DEVICE), columns, sums))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for config, b, given in calls:
            problem.run(config=config, b=b, b_sums=given)
        torch.cuda.synchronize()
    # Only what ran on the device: the profiler also lists its own work ("Activity Buffer Request",
    # "Lazy Function Loading"), which has no device, and the CUDA calls.
    names = [
        event.name
        for event in profile.events()
        if event.device_type == torch.autograd.DeviceType.CUDA
        and event.device_index == torch.cuda.current_device()
    ]
    if not names:
        pytest.skip("the profiler sees no kernels here")
    ours = [name for name in names if "block_" in name]
    for kernel in ("block_prepare_kernel", "block_gemm_kernel"):
        assert sum(kernel in name for name in ours) == len(calls)
    assert len(ours) == 2 * len(calls)
    # BlockProblem.run fills the output's memory with NaN before each call.
    others = {name for name in names if name not in ours}
    assert len(others) == 1 and "FillFunctor" in others.pop(), set(names)


def test_unknown_and_impossible_configs():
    problem = make(VIEWED, DEVICE)
    with pytest.raises(RuntimeError, match="unknown config scaled_m64n64s4"):
        problem.run(config="scaled_m64n64s4")
    with pytest.raises(RuntimeError, match="a parallel split needs a third launch"):
        problem.run(config="block_m64n64s4_parallel2")
    with pytest.raises(RuntimeError, match=r"parts of K that end with a block and 128 k, 3, got 4"):
        problem.run(config="block_m64n64s4_cluster4")


def test_beyond_two_to_the_31_elements():
    """Of the output, then of a."""
    for m, n, k in ((70_000, 32_000, 128), (70_000, 64, 32_768)):
        g = torch.Generator(device=DEVICE).manual_seed(0)
        a = torch.randn(m, k, device=DEVICE, dtype=torch.float16, generator=g)
        b = torch.randint(-128, 128, (n, k), device=DEVICE, dtype=torch.int8, generator=g).t()
        scale = torch.rand(k // 128, n, device=DEVICE, dtype=torch.float16, generator=g) * 0.01
        offset = torch.randn(k // 128, n, device=DEVICE, dtype=torch.float16, generator=g) * 0.1
        out = torch.ops.mixed_gemm.block_quant_gemm(a, b, scale, offset, block_size=128)
        for rows in (slice(0, 4), slice(m - 4, m)):
            options = {"block_size": 128}
            exact = reference_conv.block_quant_gemm(a[rows], b, scale, offset, **options)
            bound = reference_conv.block_error_bound(a[rows], b, scale, offset, **options)
            assert ((out[rows].double() - exact).abs() <= bound).all()
        del a, b, out
