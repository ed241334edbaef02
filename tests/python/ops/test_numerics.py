"""What docs/numerics.md promises of every op on the CPU: the same bits run after run and with any
number of threads, rows that do not read each other, and where NaN, infinities and subnormal numbers
go. On the kernels of this machine's instruction set.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

import mixed_gemm

K, N, GROUP = 256, 72, 64
ROWS = 65  # behind every path that depends on M: by vectors, by slabs, by tile registers
Op = Callable[[Tensor], Tensor]


def gemm(dtype: torch.dtype, bits: int, zero_mode: str | None) -> tuple[Tensor, Op]:
    q = torch.randint(-(2 ** (bits - 1)), 2 ** (bits - 1), (N, K), dtype=torch.int8)
    packed = mixed_gemm.pack_weights(q, bits)
    scales = (0.01 + torch.rand(K // GROUP, N) / 2**bits).to(dtype)
    zeros = None if zero_mode is None else torch.randint(-8, 8, scales.shape).to(dtype)
    options = {"bits": bits, "group_size": GROUP, "zero_mode": zero_mode or "sub"}
    return torch.randn(ROWS, K).to(dtype), lambda a: mixed_gemm.fpA_intB_gemm(
        a, packed, scales, zeros, **options
    )


def awq(dtype: torch.dtype) -> tuple[Tensor, Op]:
    words = torch.randint(-(2**31), 2**31, (K + K // GROUP, N // 8)).to(torch.int32)
    qweight, qzeros = words.split((K, K // GROUP))
    scales = (0.01 + torch.rand(K // GROUP, N) / 16).to(dtype)
    return torch.randn(ROWS, K).to(dtype), lambda a: mixed_gemm.awq_gemm(a, qweight, scales, qzeros)


def scaled(dtype: torch.dtype, azp: bool) -> tuple[Tensor, Op]:
    a, b = (torch.randint(-128, 128, (rows, K), dtype=torch.int8) for rows in (ROWS, N))
    if dtype != torch.int8:
        a, b = (torch.randn(rows, K).to(dtype) for rows in (ROWS, N))
    scale_a, scale_b, out = torch.tensor([0.01]), torch.rand(N) * 0.01, torch.float16
    if not azp:
        return a, lambda x: mixed_gemm.scaled_mm(x, b.t(), scale_a, scale_b, out_dtype=out)
    sums, point = mixed_gemm.ops.azp_adjustment(b), torch.tensor([7], dtype=torch.int32)
    adjustment = (sums * point).to(torch.int32)
    return a, lambda x: mixed_gemm.scaled_mm_azp(
        x, b.t(), scale_a, scale_b, adjustment, out_dtype=out
    )


def dynamic(dtype: torch.dtype, azp: bool) -> tuple[Tensor, Op]:
    b, scale_b = torch.randint(-128, 128, (N, K), dtype=torch.int8), torch.rand(N) * 0.01
    sums = mixed_gemm.ops.azp_adjustment(b) if azp else None
    return torch.randn(ROWS, K).to(dtype), lambda a: mixed_gemm.scaled_mm_dynamic(
        a, b.t(), scale_b, sums
    )


def block(dtype: torch.dtype) -> tuple[Tensor, Op]:
    b = torch.randint(-128, 128, (N, K), dtype=torch.int8).t()
    scale, offset = (torch.rand(K // GROUP, N).to(dtype) for _ in range(2))
    return torch.randn(ROWS, K).to(dtype), lambda a: mixed_gemm.block_quant_gemm(
        a, b, scale, offset, block_size=GROUP
    )


def conv(dtype: torch.dtype) -> tuple[Tensor, Op]:
    q = torch.randint(-8, 8, (N, 32, 3, 3), dtype=torch.int8)
    packed, scales = mixed_gemm.pack_conv_weights(q, 4), torch.rand(1, N).to(dtype)
    return torch.randn(3, 32, 5, 5).to(dtype), lambda x: mixed_gemm.qconv2d(
        x, packed, scales, bits=4, kernel_size=3, padding=1
    )


def per_token(dtype: torch.dtype) -> tuple[Tensor, Op]:
    def run(a: Tensor) -> Tensor:
        q, scale, azp = mixed_gemm.quantize_per_token(a, symmetric=False)
        assert azp is not None
        return torch.cat((q.float(), scale, azp.float()), dim=-1)

    return torch.randn(ROWS, K).to(dtype), run


FLOATS = (torch.float16, torch.bfloat16, torch.float32)
GEMMS = {
    f"{str(dtype)[6:]} int{bits} {zero_mode}": (dtype, bits, zero_mode)
    for dtype in FLOATS
    for bits in (4, 8)
    for zero_mode in (None, "sub", "add")
}
OPS: dict[str, Callable[[], tuple[Tensor, Op]]] = {
    **{f"gemm {name}": lambda v=values: gemm(*v) for name, values in GEMMS.items()},
    "awq float16": lambda: awq(torch.float16),
    "awq bfloat16": lambda: awq(torch.bfloat16),
    "awq float32": lambda: awq(torch.float32),
    "scaled int8": lambda: scaled(torch.int8, False),
    "scaled int8 azp": lambda: scaled(torch.int8, True),
    "scaled float8": lambda: scaled(torch.float8_e4m3fn, False),
    "dynamic float16": lambda: dynamic(torch.float16, False),
    "dynamic float32 azp": lambda: dynamic(torch.float32, True),
    "block float16": lambda: block(torch.float16),
    "block float32": lambda: block(torch.float32),
    "conv float16": lambda: conv(torch.float16),
    "conv float32": lambda: conv(torch.float32),
    "per token float16": lambda: per_token(torch.float16),
}
# Any order of summing is the same.
EXACT = (
    *("scaled int8", "scaled int8 azp", "per token float16"),
    *("dynamic float16", "dynamic float32 azp"),
)


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", OPS)
def test_bits_repeat_with_any_number_of_threads(name: str, threads: None) -> None:
    a, run = OPS[name]()
    for rows in (3, ROWS):
        first = run(a[:rows])
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            assert torch.equal(run(a[:rows]), first), (rows, count)


TAKES_NAN = [name for name in OPS if not name.startswith("scaled int8")]
TAKES_INFINITY = [name for name in TAKES_NAN if name != "scaled float8"]


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, torch.nan) for name in TAKES_NAN]
    + [(name, sign * torch.inf) for name in TAKES_INFINITY for sign in (1, -1)],
)
def test_a_row_that_is_not_finite_stays_alone(name: str, value: float) -> None:
    a, run = OPS[name]()
    image = a.dim() == 4
    for rows in (3,) if image else (3, 17, ROWS):
        x = a[:rows].float()
        x[1].view(-1)[5] = value
        out, clean = run(x.to(a.dtype)), run(a[:rows])
        keep = torch.arange(rows) != 1
        assert torch.equal(out[keep], clean[keep]), rows
        if image:
            touched = out[1, :, 0:3, 0:2]  # where the filter sees the pixel (1, 0)
        elif name.startswith("per token"):
            touched = out[1, K : K + 1]  # the scale tells it; q is 0
        else:
            touched = out[1]
        assert not touched.isfinite().any(), rows
        assert value == value or touched.isnan().all(), rows


@pytest.mark.parametrize("name", EXACT)
def test_integer_sums_do_not_depend_on_the_number_of_rows(name: str) -> None:
    a, run = OPS[name]()
    whole = run(a)
    for rows in range(1, ROWS):
        assert torch.equal(run(a[:rows]), whole[:rows]), rows
    assert torch.equal(run(a.flip(0)).flip(0), whole)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bits", [4, 8])
def test_a_scale_that_is_not_finite_stays_in_its_column(
    bits: int, dtype: torch.dtype, value: float
) -> None:
    q = torch.randint(1, 2 ** (bits - 1), (N, K), dtype=torch.int8)
    packed = mixed_gemm.pack_weights(q, bits)
    scales = (0.01 + torch.rand(K // GROUP, N) / 2**bits).to(dtype)
    broken = scales.clone()
    broken[2, 5] = value
    keep = torch.arange(N) != 5
    for rows in (1, 3, 17, ROWS):
        a = (0.5 + torch.rand(rows, K)).to(dtype)
        out, clean = (
            mixed_gemm.fpA_intB_gemm(a, packed, s, bits=bits, group_size=GROUP)
            for s in (broken, scales)
        )
        assert torch.equal(out[:, keep], clean[:, keep])
        assert not out[:, 5].isfinite().any()


@pytest.mark.parametrize("rows", [1, 8, ROWS])
@pytest.mark.parametrize("bits", [4, 8])
def test_float16_subnormals_count(bits: int, rows: int) -> None:
    """Activations, scales and results below 2^-14 are no zeros."""
    q = torch.eye(K, dtype=torch.int8)
    packed, least = mixed_gemm.pack_weights(q, bits), 2.0**-24
    one = torch.ones(1, K).half()
    a = (torch.arange(K).float().repeat(rows, 1) * least).half()
    options = {"bits": bits, "group_size": -1}
    assert torch.equal(mixed_gemm.fpA_intB_gemm(a, packed, one, **options), a)
    tiny = (torch.arange(K).view(1, K) * least).half()
    ones = torch.ones(rows, K).half()
    assert torch.equal(
        mixed_gemm.fpA_intB_gemm(ones, packed, tiny, **options), tiny.expand(rows, K)
    )


def test_the_document_names_tests_that_exist(repository: Path) -> None:
    text = (repository / "docs" / "numerics.md").read_text()
    python = repository / "tests" / "python"
    sources = ""
    for name in sorted(set(re.findall(r"`((?:\w+/)?test_\w+\.py)`", text))):
        gpu = name.startswith("test_gpu")
        sources += ((repository / "tests" / "gpu" if gpu else python) / name).read_text()
    for function in set(re.findall(r"`(test_\w+)`", text)):
        assert f"def {function}" in sources, function
    versions = re.search(r"`kLayoutVersion` .*, (\d+) so far", text)
    assert versions is not None and int(versions[1]) == mixed_gemm.env().layout_version
