"""float8 by wgmma (compute capability 9.0), every tile and split by name: within the bound of
reference_scaled of float64, exactly where nothing rounds, scales of blocks where they belong, the
quantizer bit by bit, producers.
"""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from float8_calls import (
    BLOCK,
    DEVICE,
    FLOAT8,
    Float8Call,
    ceil_div,
    drawn,
    has_few_rows,
    kernels,
    make,
    splits_of,
    wgmma_names,
)
from problems.placing import odd_places
from torch import Tensor

import mixed_gemm
from mixed_gemm.reference import scaled as reference_scaled

pytestmark = pytest.mark.gpu

HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
NAMES = (
    "wgmma_m16n64s10",
    "wgmma_m64n64s6",
    "wgmma_m64n128s4",
    "wgmma_m128n128s6",
    "wgmma_m128n256s4",
)
FORMS = pytest.mark.parametrize("blocks", (False, True), ids=("rows", "blocks"))
KERNELS = pytest.mark.parametrize("kernel", NAMES)
FLOATS = (torch.float16, torch.bfloat16, torch.float32)


@pytest.fixture(autouse=True)
def only_hopper() -> None:
    if not HOPPER:
        pytest.skip("wgmma is of compute capability 9.0 alone")


def codes() -> Tensor:
    """All 256."""
    return torch.arange(256, dtype=torch.uint8, device=DEVICE).view(FLOAT8)


def ones(*shape: int) -> Tensor:
    return torch.ones(shape or (1,), device=DEVICE)


def same(out: Tensor, expected: Tensor) -> bool:
    """As numbers, NaN equal to NaN."""
    nan = out.isnan() & expected.isnan()
    return bool(((out == expected) | nan).all())


def test_all_kernels_are_here():
    assert tuple(sorted(kernels())) == tuple(sorted(NAMES))


@FORMS
@pytest.mark.parametrize("seed", range(12))
def test_free_choice_is_within_the_bound(record, seed: int, blocks: bool) -> None:
    draw = random.Random(seed + 100 * blocks)
    torch.manual_seed(seed)
    for _ in range(10):
        call = drawn(draw, blocks)
        k = call.a.shape[1]
        oracle = None
        for kernel in NAMES:
            names = splits_of(kernel, k)
            for config in {kernel, *draw.sample(names, min(3, len(names)))}:
                oracle = oracle or call.oracle()
                out = call.run(config)
                assert out.dtype == call.out_dtype
                form = "blocks" if blocks else "rows"
                record(f"fp8-{form}-{config}", mixed_gemm.reference.error_ratio(out, *oracle))


@FORMS
def test_what_dispatch_chooses_is_within_the_bound(record, blocks: bool) -> None:
    for m, (n, k) in itertools.product((1, 16, 64, 300, 1024), ((4096, 4096), (1000, 1030))):
        call = make(m, n, k, out_dtype=torch.bfloat16, blocks=blocks, bias=True)
        out = call.run()
        record(f"fp8-chosen-{'blocks' if blocks else 'rows'}", call.ratio(out))
        scales, options = (call.scale_a, call.scale_b), {"out_dtype": call.out_dtype}
        if blocks:
            options["block_size"] = BLOCK
        raw = torch.ops.mixed_gemm.scaled_mm(call.a, call.weight.t(), *scales, call.bias, **options)
        assert torch.equal(raw, out)


@KERNELS
def test_every_split_that_is_listed_is_within_the_bound(record, kernel: str) -> None:
    for blocks in (False, True):
        call = make(70, 520, 2100, blocks=blocks, bias=True)
        oracle = call.oracle()
        for name in wgmma_names(70, 520, 2100):
            if not name.startswith(kernel):
                continue
            record(f"fp8-{name}", mixed_gemm.reference.error_ratio(call.run(name), *oracle))


@KERNELS
@pytest.mark.parametrize("k, at", ((1, 0), (130, 77), (300, 299), (256, 128)))
def test_all_products_of_two_codes(kernel: str, k: int, at: int) -> None:
    """One product each, so all are exact: 8 bits of at most 2^17, down to 2^-18."""
    a, weight = (torch.zeros(256, k, device=DEVICE).to(FLOAT8) for _ in range(2))
    a[:, at], weight[:, at] = codes(), codes()
    expected = codes().float()[:, None] * codes().float()
    for config in splits_of(kernel, k):
        plain = Float8Call(a, weight, ones(), ones(), None, torch.float32, False)
        assert same(plain.run(config), expected), config
        groups = ceil_div(k, BLOCK[1])
        blocks = Float8Call(
            a, weight, ones(256, groups), ones(2, groups), None, torch.float32, True
        )
        assert same(blocks.run(config), expected), config


@FORMS
@KERNELS
def test_one_hot_rows_read_the_weight(kernel: str, blocks: bool) -> None:
    """Row i of `a` is 1 at one place: the output is that column of the weight, times its scales, in
    the order in which they are multiplied."""
    for n, k in ((520, 300), (257, 640), (100, 129)):
        m, groups = min(k, 400), ceil_div(k, BLOCK[1])
        call = make(m, n, k, blocks=blocks)
        at = torch.randperm(k, device=DEVICE)[:m]
        a = torch.zeros(m, k, device=DEVICE)
        a[torch.arange(m, device=DEVICE), at] = 1
        call.a = a.to(FLOAT8)
        values = call.weight.float().t()[at]
        if blocks:
            g, j = at // BLOCK[1], torch.arange(n, device=DEVICE) // BLOCK[0]
            assert int(g.max()) == groups - 1
            both = call.scale_a.gather(1, g[:, None]) * call.scale_b[j][:, g].t()
            expected = both * values
        else:
            expected = call.scale_a * (call.scale_b * values)
        for config in splits_of(kernel, k):
            assert torch.equal(call.run(config), expected), config


@FORMS
@KERNELS
def test_lattice_is_exact(kernel: str, blocks: bool) -> None:
    """Small integers and scales that are powers of two: no sum of a line needs more bits than the
    tensor core has, and none of the fp32 sums rounds."""
    for m, n, k in ((130, 300, 1000), (64, 64, 4096), (1, 513, 2049)):
        call = make(m, n, k, blocks=blocks)
        a, weight = (torch.randint(-2, 3, (rows, k), device=DEVICE) for rows in (m, n))
        call.a, call.weight = a.float().to(FLOAT8), weight.float().to(FLOAT8)
        call.scale_a = torch.exp2(torch.randint(-2, 3, call.scale_a.shape, device=DEVICE).float())
        call.scale_b = torch.exp2(torch.randint(-2, 3, call.scale_b.shape, device=DEVICE).float())
        exact, _ = call.oracle()
        for config in splits_of(kernel, k):
            assert torch.equal(call.run(config).double(), exact), config


@KERNELS
def test_sums_are_promoted(record, kernel: str) -> None:
    """All of one sign and size: a tensor core that added up all of K by itself would lose what is
    below 2^-13 of the sum, again and again."""
    m, n, k = 64, 128, 1 << 15
    a, weight = (torch.full((rows, k), 1.125, device=DEVICE).to(FLOAT8) for rows in (m, n))
    for blocks in (False, True):
        call = make(m, n, k, blocks=blocks)
        call.a, call.weight = a, weight
        call.scale_a, call.scale_b = torch.ones_like(call.scale_a), torch.ones_like(call.scale_b)
        record(f"fp8-long-{kernel}", call.ratio(call.run(kernel)))


@FORMS
@KERNELS
def test_nan_stays_in_its_row(kernel: str, blocks: bool) -> None:
    call = make(130, 300, 700, blocks=blocks, bias=True)
    clean = call.run(kernel)
    call.a = call.a.clone()
    call.a.view(torch.uint8)[65, 333] = 0x7F
    out = call.run(kernel)
    assert out[65].isnan().all()
    rest = [i for i in range(130) if i != 65]
    assert torch.equal(out[rest], clean[rest])


@KERNELS
def test_scales_that_are_no_numbers_stay_where_they_are(kernel: str) -> None:
    call = make(130, 300, 700, blocks=True)
    clean = call.run(kernel)
    call.scale_a[3, 2], call.scale_a[70, 5], call.scale_b[1, 0] = float("nan"), float("inf"), 0.0
    out = call.run(kernel)
    assert out[3].isnan().all() and not out[70].isfinite().any()
    rest = [i for i in range(130) if i not in (3, 70)]
    assert torch.equal(out[rest][:, :128], clean[rest][:, :128])
    assert torch.equal(out[rest][:, 256:], clean[rest][:, 256:])
    assert not torch.equal(out[rest][:, 128:256], clean[rest][:, 128:256])


@FORMS
def test_a_place_among_the_rows_changes_nothing(blocks: bool) -> None:
    """With M fixed: rows are multiplied alike wherever they are in a tile, but for whole tiles."""
    call = make(128, 256, 640, blocks=blocks)
    for kernel in NAMES:
        out = call.run(kernel)
        order = torch.randperm(128, device=DEVICE)
        moved = call.run(kernel, a=call.a[order], scale_a=call.scale_a[order])
        assert torch.equal(moved, out[order]), kernel


@FORMS
def test_many_tiles_a_block(blocks: bool) -> None:
    """Blocks that take tile after tile, on each of which warpgroups begin their turns anew."""
    call = make(1500, 4096 + 64, 300, out_dtype=torch.bfloat16, blocks=blocks)
    oracle = call.oracle()
    for kernel in NAMES:
        other = f"{kernel}_parallel2" if has_few_rows(kernel) else f"{kernel}_streamk1"
        for config in (kernel, other):
            assert mixed_gemm.reference.error_ratio(call.run(config), *oracle) <= 1, config


@FORMS
def test_reads_what_the_quantizer_before_writes(blocks: bool) -> None:
    """The product starts while the quantizer drains, and waits for it: its bits are those of a
    product after a synchronisation."""
    x = torch.randn(64, 8192, device=DEVICE, dtype=torch.bfloat16)
    call = make(64, 512, 8192, out_dtype=torch.bfloat16, blocks=blocks)
    for config in [c for kernel in NAMES for c in (kernel, f"{kernel}_parallel4")]:
        outs = []
        for wait in (False, True):
            for scale in (1.0, 3.0, 0.5):
                y = x * scale
                torch.cuda.synchronize()
                q, of_a = torch.ops.mixed_gemm.quantize_fp8(
                    y, block_size=BLOCK[1] if blocks else None
                )
                if wait:
                    torch.cuda.synchronize()
                outs.append(call.run(config, a=q, scale_a=of_a))
                del q, of_a
        assert all(torch.equal(x, y) for x, y in zip(outs[:3], outs[3:], strict=True)), config


def test_refusals_say_what_runs() -> None:
    call = make(8, 256, 256, blocks=True)
    for block, scale_a, scale_b in (
        ([64, 128], call.scale_a, ones(4, 2)),
        ([128, 64], ones(8, 4), ones(2, 4)),
    ):
        given = {"block_size": block, "scale_a": scale_a, "scale_b": scale_b}
        with pytest.raises(RuntimeError, match=r"blocks of 128 x 128 only, got block_n="):
            call.run(NAMES[0], **given)
    with pytest.raises(RuntimeError, match="hands no sums over"):
        call.run(f"{NAMES[0]}_streamk1")
    with pytest.raises(RuntimeError, match="takes scales of rows and columns, not of blocks"):
        call.run("scaled_m16n64s8")
    assert call.ratio(call.run()) <= 1  # nothing sticks


@pytest.mark.parametrize("bias", (False, True))
def test_no_k_is_the_bias_alone(bias: bool) -> None:
    for blocks in (False, True):
        call = make(5, 130, 0, out_dtype=torch.float16, blocks=blocks, bias=bias)
        expected = torch.zeros(5, 130, device=DEVICE).half()
        assert torch.equal(call.run(), expected + call.bias if bias else expected)


# ---- the quantizer ----------------------------------------------------------------------------


def on_cpu(x: Tensor, block_size: int | None) -> tuple[Tensor, Tensor]:
    q, scale = torch.ops.mixed_gemm.quantize_fp8(x.cpu(), block_size=block_size)
    return q, scale


def check_quantizer(x: Tensor, block_size: int | None) -> None:
    for here, there in zip(
        torch.ops.mixed_gemm.quantize_fp8(x, block_size=block_size),
        on_cpu(x, block_size),
        strict=True,
    ):
        here, there = here.cpu(), there
        assert here.shape == there.shape and here.dtype == there.dtype and here.is_contiguous()
        nan = here.float().isnan()
        assert torch.equal(nan, there.float().isnan())
        bits = torch.int32 if here.dtype == torch.float32 else torch.uint8
        assert torch.equal(here.view(bits)[~nan], there.view(bits)[~nan])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("block_size", (None, 128, 1, 8, 9, 64, 100, 256, 257, 1000, 5000))
def test_quantizer_has_the_bits_of_the_cpu(block_size: int | None, dtype: torch.dtype) -> None:
    for m, k in ((1, 128), (5, 257), (33, 1000), (2, 20_000), (129, 1), (300, 4096), (1, 8200)):
        x = torch.randn(m, k, device=DEVICE) * torch.logspace(-6, 4, m, device=DEVICE)[:, None]
        check_quantizer(x.to(dtype), block_size)


@pytest.mark.parametrize("block_size", (None, 128))
def test_quantizer_rounds_as_torch_divides(block_size: int | None) -> None:
    """Every float16 and bfloat16 below the largest of its row: quotients beside the middle of two
    codes are what a product with the inverse would get wrong."""
    for dtype, infinity in ((torch.float16, 0x7C00), (torch.bfloat16, 0x7F80)):
        values = torch.arange(infinity, dtype=torch.int16, device=DEVICE).view(dtype)
        values = values[: values.numel() // 128 * 128].view(-1, 128)
        largest = values[torch.randperm(values.shape[0], device=DEVICE)][:, -1:]
        x = torch.minimum(values, largest)
        x[:, -1:] = largest
        q, scale = torch.ops.mixed_gemm.quantize_fp8(x, block_size=block_size)
        wanted, of_rows = reference_scaled.quantize_fp8(x.cpu(), block_size=block_size)
        assert torch.equal(scale.cpu(), of_rows)
        assert torch.equal(q.cpu().view(torch.uint8), wanted.view(torch.uint8))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("block_size", (None, 128, 300))
def test_quantizer_of_what_is_not_finite(block_size: int | None, dtype: torch.dtype) -> None:
    x = torch.randn(40, 1500, device=DEVICE).to(dtype)
    x[1, 3], x[2, 700], x[3, 1499] = float("nan"), float("inf"), -float("inf")
    x[4, 5], x[4, 6], x[5], x[6, :200] = float("nan"), float("inf"), 0.0, -0.0
    check_quantizer(x, block_size)


@pytest.mark.parametrize("block_size", (None, 128))
def test_quantizer_of_views_and_of_nothing(block_size: int | None) -> None:
    x = torch.randn(9, 515, device=DEVICE).half()
    expected = torch.ops.mixed_gemm.quantize_fp8(x, block_size=block_size)
    for where, view in odd_places(x).items():
        out = torch.ops.mixed_gemm.quantize_fp8(view, block_size=block_size)
        pairs = zip(out, expected, strict=True)
        assert all(torch.equal(a.float(), b.float()) for a, b in pairs), where
    for shape in ((0, 128), (3, 0), (2, 3, 256)):
        check_quantizer(torch.randn(shape, device=DEVICE).half(), block_size)
