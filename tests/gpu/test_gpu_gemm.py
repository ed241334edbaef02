"""Compiled kernels, forced by name, where test_gpu_problems.py turns nothing on: zero points of all
kinds, infinities, long K, and what is exact."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from configs import (
    DTYPES,
    KERNELS,
    MODES,
    SKINNY_CLUSTERS,
    WGMMA,
    configs_of,
    has_mode,
)
from problems.gemm import FACTORS, Case, make
from problems.registry import OPS
from support.settings import without_tf32

import mixed_gemm
from mixed_gemm import reference
from mixed_gemm.ops.problem import ACTIVATIONS

pytestmark = pytest.mark.gpu

EPILOGUE_CONFIGS = (
    *WGMMA[:2],
    "multistage_m32n128s4",
    "multistage_m64n128s4_streamk1",
    "multistage_m16n128s6_parallel3",
    "skinny_m8n16w8",
)
LONG_K_CONFIGS = (
    *WGMMA,
    *(f"{kernel}_streamk1" for kernel in WGMMA[:2]),
    "multistage_m16n128s6",
    "multistage_m128n256s3",
    "multistage_m64n128s4_streamk2",
    "multistage_m16n256s6_parallel16",
    "skinny_m16n64w8",
    *SKINNY_CLUSTERS,
)


# Of every way to scale: one group, groups of whole, half and smaller parts of a k-tile.
SCHEMES = (
    *((-1, zeros) for zeros in ("none", "sub", "sub_real", "add")),
    *((128, "none"), (64, "none"), (64, "sub"), (192, "sub_real"), (256, "add")),
    *((32, "none"), (96, "none"), (32, "sub"), (160, "add")),
    *((16, "none"), (48, "sub"), (80, "add"), (16, "sub_mixed")),
)


# What turns beside what a test is about.
FREE = {
    "bits": (4, 8),
    "bias": (False, True),
    "pre_scale": (False, True),
    "activation": ACTIVATIONS,
}


def cases_like(base: Case, free: dict[str, Any], scheme: Any) -> Iterator[Case]:
    """Cases in which every two of the free values and schemes meet; the rest is as ``base`` has
    it."""
    fixed = {name: (value,) for name, value in vars(base).items() if name in FACTORS}
    yield from OPS["fpA_intB_gemm"].pairs(**{**fixed, **free, "scheme": scheme})


@functools.cache
def cases_for(dtype: torch.dtype, bits: int) -> tuple[Case, ...]:
    """Each scheme meets each depth; K is no multiple of 8 in most of them."""
    fixed = {"dtype": (dtype,), "bits": (bits,), "scheme": SCHEMES, "lead": ("2d",)}
    sizes = {"m": (1, 2, 9, 33, 64, 130), "n": (72, 136, 257, 384), "k": (257, 512, 777, 1001)}
    places = {f"{name}_place": ("alone",) for name in ("a", "b", "scales", "zeros", "vectors")}
    return tuple(OPS["fpA_intB_gemm"].pairs(**fixed, **sizes, **places))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("bits", (4, 8))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_kernel_and_split(record, dtype, bits, kernel):
    """test_gpu_problems.py runs every configuration as well, over more; this one by kernel."""
    runs = 0
    for case in cases_for(dtype, bits):
        problem = make(case, "cuda", drawn_on="cuda")
        oracle = problem.oracle()
        for config in problem.configs():
            if config.split("_")[:2] != kernel.split("_"):
                continue
            out = problem.run(config=config)
            ratio = reference.error_ratio(out, oracle.expected, oracle.statistical)
            record(f"{config}-{str(dtype)[6:]}-int{bits}", ratio)
            runs += 1
    assert runs >= 32, "a kernel takes most schemes, in several splits"


@pytest.mark.parametrize("kernel", [k for k in KERNELS if k.startswith("multistage")])
@pytest.mark.parametrize("bits", (4, 8))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_both_kernels_of_a_multistage_tile_agree_bit_by_bit(dtype, bits, kernel):
    """Without a split, CUTLASS's kernel runs most tiles, ours where there is an activation behind
    the bias. Both add the same products in the same order, and relu commutes with the rounding."""
    for case in cases_for(dtype, bits):
        problem = make(case, "cuda", drawn_on="cuda")
        plain = problem.run(config=kernel, activation="identity")
        assert torch.equal(torch.relu(plain), problem.run(config=kernel, activation="relu")), case


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("bits", (4, 8))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_groups_of_whole_and_other_zero_points(record, dtype, bits, kernel):
    """Kernels may treat zero points that are whole numbers, or zero, in their own way, and what
    the first group has may tell them which."""
    for zero_mode, group_size in itertools.product(("sub_real", "add"), (32, 64, 192)):
        problem = make(Case(40, 200, 776, dtype, bits, group_size, zero_mode), "cuda")
        zeros = problem.zeros
        even = zeros[::2]
        even.copy_(even.round() if zero_mode == "sub_real" else torch.zeros_like(even))
        zeros[2::4, 7] = 0.3  # one column of a warp's
        for config in configs_of(kernel, problem.case):
            ratio = problem.ratio(problem.run(config=config))
            record(f"{config}-some-{zero_mode}-int{bits}", ratio)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("bits", (4, 8))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_zero_points_beyond_those_of_checkpoints(record, dtype, bits, kernel):
    """Whole as they are, some are more than the constants of a conversion hold."""
    for group_size in (-1, 32, 64):
        problem = make(Case(20, 136, 520, dtype, bits, group_size, "sub"), "cuda")
        for column, zero in ((3, 100), (20, -300), (70, 3000), (100, 60000), (135, -40000)):
            problem.zeros[-1, column] = zero
        problem.scales[-1, 100:] *= 2**-6  # fp16 would overflow
        for config in configs_of(kernel, problem.case):
            ratio = problem.ratio(problem.run(config=config))
            record(f"{config}-large-zeros-int{bits}", ratio)


@pytest.mark.parametrize("k", (77, 129, 513, 777, 1001))
@pytest.mark.parametrize("zero_mode", ("sub", "add"))
def test_one_group_of_a_ragged_k(record, zero_mode, k):
    """Kernels get K rounded up to 8, and one group is all of it."""
    for dtype, bits in itertools.product(DTYPES, (4, 8)):
        problem = make(Case(3, 72, k, dtype, bits, -1, zero_mode), "cuda")
        configs = problem.configs()
        assert {c.rpartition("_")[0] if c.count("_") > 1 else c for c in configs} >= set(KERNELS)
        for config in configs:
            ratio = problem.ratio(problem.run(config=config))
            record(f"{config}-one-group-{zero_mode}-int{bits}", ratio)


@pytest.mark.parametrize("kernel", WGMMA)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_infinite_activations_and_zero_points(dtype, kernel):
    """They are mended by sums of activations, which are infinite then: columns and rows that need
    none, or have none, stay what they are."""
    problem = make(Case(20, 200, 776, dtype, 4, 64, "sub"), "cuda")
    problem.zeros[3, 7] = 0.3
    problem.a[2, 200], problem.a[5, 201], problem.a[19, 775] = math.inf, -math.inf, math.nan
    expected = reference.fpA_intB_gemm(problem.a, problem.q, *problem.extras(), **problem.scheme())
    mended = torch.arange(200, device="cuda") == 7
    for config in configs_of(kernel, problem.case):
        out = problem.run(config=config).double()
        for kind in (torch.isnan, torch.isposinf, torch.isneginf):
            assert torch.equal(kind(out)[:, ~mended], kind(expected)[:, ~mended]), config
        finite = torch.isfinite(expected).all(dim=1)
        assert torch.isfinite(out[finite]).all(), config


@pytest.mark.parametrize("bits", (4, 8))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_activation_and_bias(record, dtype, bits):
    for activation in ACTIVATIONS:
        for bias in (False, True):
            case = Case(40, 136, 256, dtype, bits, 64, "sub", bias=bias, activation=activation)
            problem = make(case, "cuda")
            for config in EPILOGUE_CONFIGS:
                record(f"{activation}-{config}", problem.ratio(problem.run(config=config)))


@pytest.mark.parametrize("group_size", (-1, 16, 32, 48, 64, 80, 112, 128, 192, 256, 320))
@pytest.mark.parametrize("zero_mode", ("none", "sub", "sub_real", "add"))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_selected_kernel_for_every_scheme(record, dtype, zero_mode, group_size):
    for bits in (4, 8):
        for m in (1, 9, 70, 300):
            problem = make(Case(m, 200, 640, dtype, bits, group_size, zero_mode, bias=True), "cuda")
            record(f"selected-g{group_size}-{zero_mode}", problem.ratio(problem.run()))


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16, torch.float32), ids=str)
@pytest.mark.parametrize("zero_mode", ("none", "sub", "add"))
def test_dequantize_dense(record, dtype, zero_mode):
    schemes = {"scheme": tuple((group, zero_mode) for group in (-1, 32, 128))}
    with without_tf32():
        for case in cases_like(Case(65, 130, 520, dtype), free=FREE, **schemes):
            problem = make(case, "cuda")
            record(
                f"dense-{str(dtype)[6:]}-{zero_mode}",
                problem.ratio(problem.run(config="dequantize_dense")),
            )


def test_long_k_within_bound(record):
    for dtype in DTYPES:
        for config in LONG_K_CONFIGS:
            problem = make(Case(16, 256, 28672, dtype, 4, 128, "sub"), "cuda")
            record(f"long-{config}", problem.ratio(problem.run(config=config)))


@pytest.mark.parametrize("bits", (4, 8))
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_hot_rows_read_back_every_weight_exactly(dtype, mode, bits):
    """a = identity: each output is one dequantized weight, so it must be the correctly rounded
    one."""
    groups, zero_modes = MODES[mode]
    case = Case(1, 136, 520, dtype, bits, groups[0], zero_modes[0])
    problem = make(case, "cuda")
    w = reference.dequantize(problem.q, problem.scales, problem.zeros, **problem.scheme())
    identity = torch.eye(case.k, dtype=dtype, device="cuda")
    for kernel in (kernel for kernel in KERNELS if has_mode(kernel, mode)):
        out = problem.run(identity, kernel)
        assert torch.equal(out, w.t().to(dtype)), kernel


@pytest.mark.parametrize("bits", (4, 8))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_integer_lattice_is_exact(dtype, bits):
    """a in -2..2, zeros integer, scales a power of two: every sum is exact in fp32, so the output
    is the exact sum rounded once, whatever the order."""
    g = torch.Generator().manual_seed(1)
    m, n, k, group = 70, 200, 1024, 64
    q = torch.randint(
        -(2 ** (bits - 1)), 2 ** (bits - 1), (n, k), generator=g, dtype=torch.int8
    ).cuda()
    a = torch.randint(-2, 3, (m, k), generator=g).to(dtype).cuda()
    scales = torch.full((k // group, n), 2.0**-6, dtype=dtype, device="cuda")
    zeros = torch.randint(-8, 8, (k // group, n), generator=g).to(dtype).cuda()
    exact = (a.double() @ reference.dequantize(q, scales, zeros, group_size=group).t()).to(dtype)
    packed = mixed_gemm.pack_weights(q, bits)
    case = Case(m, n, k, dtype, bits, group, "sub")
    for kernel in KERNELS:
        for config in configs_of(kernel, case):
            out = torch.ops.mixed_gemm.fpA_intB_gemm_config(
                a, packed, scales, zeros, bits=bits, group_size=group, config=config
            )
            assert torch.equal(out, exact), config


def test_cpu_and_cuda_agree(record):
    free = {"dtype": (torch.float16, torch.bfloat16, torch.float32), "bits": (4, 8)}
    schemes = {"scheme": ((-1, "none"), (32, "sub"), (128, "add"))}
    base = Case(33, 130, 384, bias=True, activation="gelu")
    for case in cases_like(base, free=free, **schemes):
        on_cpu, on_gpu = make(case), make(case, "cuda")
        assert torch.equal(on_cpu.b_packed, on_gpu.b_packed.cpu()), "one layout"
        record("cpu-agrees", on_cpu.ratio(on_cpu.run()))
        record("cuda-agrees", on_cpu.ratio(on_gpu.run().cpu()))
