"""float8 operands that torch multiplies: on some GPUs scaled_mm calls torch._scaled_mm (cuBLAS),
and torch.mm for scales of blocks. Here both run on the CPU, by name.

Whatever views come in, torch._scaled_mm must get what it takes: it refuses or crashes on some
others, and reads a wrong bias of one that is expanded. The product of cuBLAS itself runs on GPUs
only (tests/gpu/test_gpu_float8_in_torch.py); a stand-in looks at its operands and multiplies.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from problems.registry import OPS
from problems.scaled import TORCH_BLOCKS, TORCH_SCALED, ScaledCase, make
from torch import Tensor

from mixed_gemm.reference import scaled as reference_scaled

M, N, K = 5, 32, 48
FP8 = torch.float8_e4m3fn
OUT_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def odd(x: Tensor) -> Tensor:
    """At an odd offset of its storage."""
    store = torch.zeros(x.numel() + 1, dtype=x.dtype)
    return store[1:].view(x.shape).copy_(x)


def wide(x: Tensor) -> Tensor:
    """Rows that are further apart, by no multiple of 16."""
    store = torch.zeros(*x.shape[:-1], x.shape[-1] + 3, dtype=x.dtype)
    return store[..., : x.shape[-1]].copy_(x)


def transposed(x: Tensor) -> Tensor:
    return x.t().contiguous().t() if x.dim() == 2 else x


def expanded(x: Tensor) -> Tensor:
    """All rows the first one."""
    return x[:1].expand(x.shape)


def single(x: Tensor) -> Tensor:
    """A single row with an odd stride, where there is one row."""
    store = torch.zeros(2, x.shape[-1] + 5, dtype=x.dtype)
    return store[:1, : x.shape[-1]].copy_(x[:1])


PLACES = {
    "alone": lambda x: x,
    "odd": odd,
    "wide": wide,
    "transposed": transposed,
    "expanded": expanded,
}


def starts_whole(x: Tensor) -> bool:
    return x.data_ptr() % 16 == 0


def strict_scaled_mm(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
    *,
    out: Tensor,
) -> Tensor:
    """torch._scaled_mm that takes only what cuBLAS takes everywhere."""
    (m, k), n = a.shape, b.shape[1]
    assert a.stride() == (k, 1) and starts_whole(a)
    assert b.stride(0) == 1 and b.stride(1) >= k and b.stride(1) % 16 == 0 and starts_whole(b)
    per_row = scale_a.dim() == 2
    assert scale_a.shape == ((m, 1) if per_row else ()) and scale_a.is_contiguous()
    assert scale_b.shape == ((1, n) if per_row else ()) and scale_b.is_contiguous()
    assert starts_whole(scale_a) and starts_whole(scale_b)
    assert bias is None or (bias.stride() == (1,) and starts_whole(bias))
    assert out.shape == (m, n) and out.is_contiguous() and starts_whole(out)
    assert out.dtype == out_dtype == (torch.bfloat16 if per_row else torch.float32)
    assert scale_result is None and not use_fast_accum
    result = (a.double() @ b.double()) * scale_a.double() * scale_b.double()
    return out.copy_(result if bias is None else result + bias.double())


@pytest.fixture
def strict() -> Iterator[None]:
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():  # that there is a kernel already
        warnings.simplefilter("ignore")
        library.impl("_scaled_mm.out", strict_scaled_mm, "CPU", allow_override=True)
    yield
    library._destroy()


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("out_dtype", OUT_DTYPES)
@pytest.mark.parametrize("m", (1, M))
def test_any_view_gets_there_as_cublas_takes_it(m: int, out_dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    checked = 0
    places = list(PLACES.values()) + ([single] if m == 1 else [])
    for place_a, place_b, place_v in itertools.product(places, PLACES.values(), (odd, expanded)):
        a = place_a(normal(m, K).to(FP8))
        b = place_b(normal(N, K).to(FP8)).t()
        if b.stride(0) != 1:  # which the op refuses
            b = b.t().contiguous().t()
        scale_a, scale_b = place_v(normal(m).abs()), place_v(normal(N).abs())
        bias = place_v(normal(N).to(out_dtype))
        for with_bias in (None, bias):
            out = torch.ops.mixed_gemm._scaled_mm_config(
                a, b, scale_a, scale_b, None, None, with_bias,
                out_dtype=out_dtype, config=TORCH_SCALED,
            )  # fmt: skip
            expected = reference_scaled.scaled_mm(a, b, scale_a, scale_b, with_bias)
            torch.testing.assert_close(out.double(), expected, rtol=0.01, atol=1e-3)
            checked += 1
    assert checked >= 100


@pytest.mark.usefixtures("strict")
def test_products_round_once() -> None:
    """Every two values of the table of problems, where N and K are multiples of 16."""
    of: dict[str, Any] = {"operand": (FP8,), "block": (None,), "azp": ("none",)}
    cases = list(OPS["scaled_mm"].pairs(**of, n=(0, 16, 64, 144), k=(16, 48, 272)))
    assert len({(case.out_dtype, case.bias, case.lead) for case in cases}) > 12
    assert any(case.m == 0 for case in cases)
    for i, case in enumerate(cases):
        problem = make(case, seed=i)
        assert problem.verdict(problem.run(config=TORCH_SCALED)) <= 1, case


def test_blocks_in_torch_agree() -> None:
    """GPUs that no kernel is for run this: every two values of the table of problems."""
    cases = [case for case in OPS["scaled_mm"].pairs() if case.block is not None]
    assert any(case.k == 0 for case in cases) and any(case.m == 0 for case in cases)
    for i, case in enumerate(cases):
        problem = make(case, seed=i)
        assert problem.verdict(problem.run(config=TORCH_BLOCKS)) <= 1, case


def test_blocks_are_added_up_in_fp32_under_autocast() -> None:
    problem = make(ScaledCase(9, 40, 400, torch.float32, FP8, block=(16, 48)))
    expected = problem.run(config=TORCH_BLOCKS)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(problem.run(config=TORCH_BLOCKS), expected)


def test_a_block_of_more_rows_than_the_weight_takes_no_more_memory() -> None:
    problem = make(ScaledCase(3, 40, 64, torch.float32, FP8, block=(2**30, 64)))
    assert problem.verdict(problem.run(config=TORCH_BLOCKS)) <= 1


@pytest.mark.parametrize(
    ("case", "config", "text"),
    [
        (ScaledCase(3, 40, 64), TORCH_SCALED, "a must be float8_e4m3fn on a CPU, got int8"),
        (
            ScaledCase(3, 32, 64, operand=FP8),
            "scaled_m16n64s8",
            "config must be torch._scaled_mm on a CPU, got scaled_m16n64s8",
        ),
        (
            ScaledCase(3, 32, 64, operand=FP8, block=(128, 128)),
            TORCH_SCALED,
            "config must be torch.mm on a CPU, got torch._scaled_mm",
        ),
    ],
    ids=str,
)
def test_only_what_torch_runs_has_a_name_on_a_cpu(case: ScaledCase, config: str, text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        make(case).run(config=config)
