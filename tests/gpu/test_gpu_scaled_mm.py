"""Every compiled scaled GEMM, forced by name: integers bit for bit, epilogues within the bound of
reference_scaled.error_bound."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from problems.registry import OPS
from problems.scaled import AZP, OUT_DTYPES, ScaledCase, ScaledProblem, make
from scaled_configs import DEVICE, FLOAT8, KERNELS, SMALL, VECTOR_K, candidates, configs_of, sums_of

import mixed_gemm
from mixed_gemm import reference

pytestmark = pytest.mark.gpu

# m around the tiles; n and k ragged (odd, not multiples of 16) and regular, both ends of an SM.
SHAPES = (
    (1, 64, 128),
    (3, 96, 200),
    (16, 130, 257),
    (17, 72, 130),
    (31, 1, 33),
    (33, 257, 1),
    (64, 256, 512),
    (65, 129, 1000),
    (100, 136, 777),
    (129, 264, 2049),
    (257, 512, 576),
    (300, 77, 4096),
    (999, 330, 640),
    (5, 1000, 4100),
    (8, 4096, 512),
    (2, 40, 0),
)
EPILOGUE_SIZES = {"m": (13, 33, 70, 129), "n": (77, 130, 136, 200), "k": (257, 384, 650, 1000)}
IN_PLACE = {
    "lead": ("2d",),
    **{f"{name}_place": ("alone",) for name in ("a", "b", "vectors")},
}
LARGEST_K = 131071
ONE_DEVICE = "all tensors must be on one device"


def ones() -> torch.Tensor:
    return torch.ones(1, device=DEVICE)


def full(shape: tuple[int, ...], value: int) -> torch.Tensor:
    return torch.full(shape, value, dtype=torch.int8, device=DEVICE)


def integers(problem: ScaledProblem) -> torch.Tensor:
    """a @ b - azp * azp_adj as int64 on the CPU. The product goes through float64, which is exact
    below 2^53: CUDA multiplies no int64 matrices."""
    sums = (problem.a.double() @ problem.b.double()).long().cpu()
    if problem.azp_adj is None:
        return sums
    adjustment = problem.azp_adj.cpu().long()
    return sums - (adjustment if problem.azp is None else problem.azp.cpu().long() * adjustment)


def run_integers(problem: ScaledProblem, config: str) -> torch.Tensor:
    """With unit scales and no bias: the integers, rounded to float32 once."""
    units = {"scale_a": ones(), "scale_b": ones(), "bias": None}
    return problem.run(config=config, **units, out_dtype=torch.float32).cpu()


def takes_blocks(kernel: str, operand: torch.dtype) -> bool:
    return kernel.startswith("wgmma") and operand == FLOAT8


def check_epilogues(record, kernel: str, operand: torch.dtype) -> int:
    """Cases in which every two of output types, forms of scales and zero points, bias and sizes
    meet, on the configurations of one kernel."""
    if not configs_of(ScaledCase(64, 256, 512, operand=operand), kernel):
        pytest.skip(f"{kernel} has no configuration for {operand} on this GPU")
    runs = 0
    fixed = {**EPILOGUE_SIZES, **IN_PLACE, "operand": (operand,)}
    if kernel.startswith("skinny"):
        fixed["k"] = (VECTOR_K, 384, 656, 2064)  # the last: a warp's third turn, cut short
    if operand != torch.int8:
        fixed["azp"] = ("none",)  # the others are int8's
    fixed["block"] = (None, (128, 128)) if takes_blocks(kernel, operand) else (None,)
    for i, case in enumerate(OPS["scaled_mm"].pairs(**fixed)):
        problem = make(case, DEVICE, seed=i)
        oracle = problem.oracle(*sums_of(kernel))
        for config in configs_of(case, kernel):
            out = problem.run(config=config)
            assert out.dtype == case.out_dtype
            name = f"{config}-{str(operand)[6:]}-{case.azp}{'-bias' if case.bias else ''}"
            record(name, reference.error_ratio(out, *oracle))
            runs += 1
    return runs


@pytest.mark.parametrize("m, n, k", SHAPES)
def test_int32_sums_equal_int64(m, n, k):
    """Sums below 2^24 are exact in float32, so equality is that of every bit of the int32."""
    problem = make(ScaledCase(m, n, k), DEVICE)
    exact = integers(problem)
    assert exact.abs().max() < 2**24
    for config in configs_of(ScaledCase(m, n, k)):
        assert torch.equal(run_integers(problem, config), exact.float()), config


@pytest.mark.parametrize("kernel", KERNELS)
def test_int8_epilogues_are_within_the_bound(record, kernel):
    assert check_epilogues(record, kernel, torch.int8) >= 16, "as many as pairs of M and N"


@pytest.mark.parametrize("kernel", KERNELS)
def test_float8_epilogues_are_within_the_bound(record, kernel):
    if torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("no float8 tensor cores before 8.9")
    assert check_epilogues(record, kernel, FLOAT8) >= 16, "as many as pairs of M and N"


def bits_of(out: torch.Tensor) -> torch.Tensor:
    return out.view(torch.int32 if out.dtype == torch.float32 else torch.int16)


# Of one step of K, so that no tile changes hands and fp8 is added up in one order: n is odd, and
# has fewer columns than a tile or more.
ONE_STEP_SHAPES = ((1, 1, 96), (33, 257, 128), (129, 77, 100), (300, 1001, 128))


def one_step_cases(operand: torch.dtype) -> list[ScaledCase]:
    """Every epilogue at each of them."""
    azps, flags = AZP if operand == torch.int8 else ("none",), (False, True)
    epilogues = itertools.product(OUT_DTYPES, (operand,), flags, flags, azps, flags)
    return [ScaledCase(*s, *e) for s, e in itertools.product(ONE_STEP_SHAPES, epilogues)]


@pytest.mark.parametrize("operand", (torch.int8, FLOAT8), ids=str)
@pytest.mark.parametrize("kernel", [k for k in KERNELS if k.startswith("scaled")])
def test_both_kernels_of_a_scaled_tile_agree_bit_by_bit(kernel, operand):
    """Without a split CUTLASS's kernel runs the tile, with stream-K ours. Scales have both signs
    and the first row has sums of zero: zeros have the same sign as well."""
    if operand == FLOAT8 and torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("no float8 tensor cores before 8.9")
    for case in one_step_cases(operand):
        problem = make(case, DEVICE)
        problem.a[0].zero_()
        plain = bits_of(problem.run(config=kernel))
        assert torch.equal(plain, bits_of(problem.run(config=f"{kernel}_streamk1"))), case
    if operand == torch.int8:  # whoever adds integers, and in whatever order
        problem = make(ScaledCase(130, 513, 2049, azp="per_row", bias=True), DEVICE)
        plain = bits_of(problem.run(config=kernel))
        for split in ("streamk1", "parallel3"):
            assert torch.equal(plain, bits_of(problem.run(config=f"{kernel}_{split}"))), split


@pytest.mark.parametrize("m, n, k", SHAPES)
def test_selected_kernel_for_every_shape(record, m, n, k):
    for i, out_dtype in enumerate(OUT_DTYPES):
        for azp in ("none", "folded", "per_row"):
            case = ScaledCase(m, n, k, out_dtype, azp=azp, bias=i != 1)
            problem = make(case, DEVICE, seed=i)
            record(f"selected-{azp}", problem.ratio(problem.run()))


@pytest.mark.parametrize("a, b", ((-128, -128), (-128, 127), (127, 127)))
def test_largest_sums_do_not_wrap(a, b):
    """Up to -128 * -128 * 131071, just below 2^31. Taking the exact sum away again in the epilogue
    leaves 5 only when all 32 bits are right."""
    m, n, k = 20, 24, LARGEST_K
    g = torch.Generator().manual_seed(0)
    weight = torch.full((n, k), b, dtype=torch.int8)
    weight[1:, ::4097] = torch.randint(-128, 128, weight[1:, ::4097].shape, generator=g).to(
        torch.int8
    )
    rows, weight = full((m, k), a), weight.to(DEVICE)
    exact = a * weight.sum(1, dtype=torch.int64)
    assert int(exact[0]) == a * b * k
    problem = ScaledProblem(
        ScaledCase(), rows, weight, ones(), ones(), None, (exact - 5).to(torch.int32), None
    )
    five = torch.full((m, n), 5.0)
    for config in configs_of(ScaledCase(m, n, k)):
        assert torch.equal(run_integers(problem, config), five), config
        problem.azp_adj, kept = None, problem.azp_adj
        assert torch.equal(run_integers(problem, config), exact.cpu().float().expand(m, n)), config
        problem.azp_adj = kept
    with pytest.raises(RuntimeError, match=r"K must be at most 131071 for int8.*got K=131072"):
        mixed_gemm.scaled_mm(
            full((1, k + 1), 0), full((1, k + 1), 0).t(), ones(), ones(), out_dtype=torch.float32
        )


def test_zero_points_do_not_wrap():
    """Products with a zero point need 64 bits; all of them, rounded to float32 once."""
    m, n, k = 19, 40, 300
    points = [2**31 - 1, -(2**31), 70_000, -1, 0, 127, -128]
    problem = make(ScaledCase(m, n, k, azp="per_row"), DEVICE)
    problem.weight[0], problem.weight[1] = 127, -128
    sums = mixed_gemm.ops.azp_adjustment(problem.weight)
    azp = torch.tensor((points * m)[:m], dtype=torch.int32, device=DEVICE)[:, None]
    folded = torch.tensor((points * n)[:n], dtype=torch.int32, device=DEVICE)
    for adjustment, of_rows in ((sums, azp), (folded, None), (folded, azp)):
        problem.azp_adj, problem.azp = adjustment, of_rows
        exact = integers(problem)
        assert exact.abs().max() > 2**31
        for config in configs_of(ScaledCase(m, n, k)):
            assert torch.equal(run_integers(problem, config), exact.float()), config


def test_zero_points_where_int32_ends():
    """Where sums less zero points just fit into int32, and where they just do not: kernels may
    subtract in 32 bits as long as nothing can wrap. Several tiles, of both kinds."""
    m, n, k = 70, 520, 300
    narrow = 1024  # the largest zero point of a row that they do that with
    room = 2**31 - 1 - 128 * 128 * k
    problem = make(ScaledCase(m, n, k, azp="per_row"), DEVICE)
    problem.a.fill_(-128)
    problem.weight.fill_(-128)
    rows = torch.ones(m, 1, dtype=torch.int32, device=DEVICE)
    for adjustment, azp in (
        *((-room, None), (-room - 1, None), (-(room // narrow), narrow)),
        *((-(room // narrow) - 1, narrow), (-(room // narrow), narrow + 1), (room, -1)),
        *((room // narrow, -narrow), (room // narrow, -narrow - 1)),
    ):
        problem.azp_adj = torch.zeros(n, dtype=torch.int32, device=DEVICE)
        problem.azp_adj[n // 2 :] = adjustment
        problem.azp = None if azp is None else rows.clone()
        if problem.azp is not None:
            problem.azp[m // 2 :] = azp
        exact = integers(problem)
        assert exact.abs().max() >= 2**31 - narrow
        for config in configs_of(ScaledCase(m, n, k)):
            assert torch.equal(run_integers(problem, config), exact.float()), config


def test_zero_point_equals_shifted_operand():
    problem = make(ScaledCase(70, 136, 777, azp="per_row"), DEVICE)
    shifted = (problem.a.double() - problem.azp) @ problem.b.double()
    for config in candidates(70, 136, 777):
        assert torch.equal(run_integers(problem, config), shifted.cpu().float()), config


def test_forms_of_scales_and_zero_points_agree():
    m = n = 24  # a vector of the wrong side would fit
    p = make(ScaledCase(m, n, 96, azp="per_row", bias=True), DEVICE)
    expected = p.run()
    for shape in ((m,), (m, 1)):
        forms = {"scale_a": p.scale_a.view(shape), "azp": p.azp.view(shape)}
        assert torch.equal(p.run(**forms), expected), shape
    row_forms = {"scale_b": p.scale_b[None], "azp_adj": p.azp_adj[None]}
    assert torch.equal(p.run(**row_forms), expected)
    wide = torch.stack([p.scale_b, p.scale_b * float("nan")], 1)
    assert torch.equal(p.run(scale_b=wide[:, 0]), expected)
    one = torch.tensor(0.25, device=DEVICE)
    same = p.run(scale_a=one.expand(m, 1), scale_b=one.expand(n))
    for shape in ((), (1,), (1, 1)):
        out = p.run(scale_a=one.reshape(shape), scale_b=one.reshape(shape))
        assert torch.equal(out, same), shape
    leading = p.run(
        p.a.view(2, m // 2, 96), scale_a=p.scale_a.view(2, -1, 1), azp=p.azp.view(2, -1, 1)
    )
    assert torch.equal(leading, expected.view(2, m // 2, n))


def test_cpu_and_cuda_agree(record):
    fixed = {"m": (33,), "n": (130,), "k": (384,), "operand": (torch.int8,), "block": (None,)}
    fixed |= IN_PLACE
    for i, case in enumerate(OPS["scaled_mm"].pairs(**fixed)):
        on_cpu = make(case, seed=i)
        tensors = {k: v.to(DEVICE) for k, v in vars(on_cpu).items() if isinstance(v, torch.Tensor)}
        on_gpu = replace(on_cpu, **tensors)
        record("cpu-agrees", on_cpu.ratio(on_cpu.run()))
        record("cuda-agrees", on_cpu.ratio(on_gpu.run().cpu()))


def test_nan_and_infinite_scales_propagate():
    p = make(ScaledCase(4, 40, 96, row_scales=True), DEVICE)
    p.scale_a[1], p.scale_a[2] = float("nan"), float("inf")
    out = p.run()
    assert out[1].isnan().all() and not out[2].isfinite().any() and out[[0, 3]].isfinite().all()


def test_bad_input_raises_and_leaves_no_sticky_error():
    p = make(ScaledCase(6, 72, 300), DEVICE)
    expected = p.run()
    bad = [
        ({"b": p.b.cpu()}, ONE_DEVICE),
        ({"scale_b": p.scale_b.cpu()}, ONE_DEVICE),
        ({"scale_b": p.scale_b[:3]}, r"scale_b must have one element or be .*N=72, got \(3,\)"),
        ({"b": p.weight}, r"b must be \(K, N\) with K=300 of a, got \(72, 300\).*transposed"),
        ({"b": p.b.contiguous()}, "b must be column-major"),
        ({"a": p.a.float()}, "a must be int8 or float8_e4m3fn"),
    ]
    for change, message in bad:
        with pytest.raises(RuntimeError, match=message):
            p.run(**change)
        assert torch.equal(p.run(), expected)
    for config, message in (
        ("fastest", "unknown config"),
        (f"{SMALL}_streamk17", "unknown config"),
        (f"{SMALL}_parallel4", r"split_k must not be larger.*= 3, got 4"),
    ):
        with pytest.raises(RuntimeError, match=message):
            p.run(config=config)
    assert torch.equal(p.run(), expected)
