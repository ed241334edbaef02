"""float8 operands that torch._scaled_mm (cuBLAS) multiplies on newer GPUs: whatever views come in,
it gets what it takes. It refuses or crashes on some others, and reads a wrong bias of one that is
expanded. The product itself runs on GPUs only (tests/gpu/sweep.py); here a stand-in looks at its
operands and multiplies.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from mixed_gemm.ops import fp8
from mixed_gemm.reference import scaled as reference_scaled

M, N, K = 5, 32, 48
FP8 = torch.float8_e4m3fn


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
    out_dtype: torch.dtype | None = None,
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
    out = (a.double() @ b.double()) * scale_a.double() * scale_b.double()
    return (out if bias is None else out + bias.double()).to(out_dtype)


@pytest.mark.parametrize("out_dtype", (torch.bfloat16, torch.float16, torch.float32))
@pytest.mark.parametrize("m", (1, M))
def test_any_view_gets_there_as_cublas_takes_it(monkeypatch, m, out_dtype):
    monkeypatch.setattr(torch, "_scaled_mm", strict_scaled_mm)
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    checked = 0
    places = list(PLACES.values()) + ([single] if m == 1 else [])
    for place_a, place_b, place_v in itertools.product(places, PLACES.values(), (odd, expanded)):
        a = place_a(normal(m, K).to(FP8))
        b = place_b(normal(N, K).to(FP8)).t()
        scale_a, scale_b = place_v(normal(m).abs()), place_v(normal(N).abs())
        bias = place_v(normal(N).to(out_dtype))
        for with_bias in (None, bias):
            out = fp8.fp8_in_torch(a, b, (scale_a, scale_b), with_bias, out_dtype)
            expected = reference_scaled.scaled_mm(a, b, scale_a, scale_b, with_bias)
            torch.testing.assert_close(out.double(), expected, rtol=0.01, atol=1e-3)
            checked += 1
    assert checked >= 100


def test_gradients_and_transforms_stay_with_our_op():
    plain = torch.ones(3)
    assert not fp8.asks_for_gradients(plain, None)
    needs = torch.ones(3, requires_grad=True)
    assert fp8.asks_for_gradients(plain, needs)
    with torch.no_grad():
        assert not fp8.asks_for_gradients(needs)
    with torch.autograd.forward_ad.dual_level():
        assert fp8.asks_for_gradients(torch.autograd.forward_ad.make_dual(plain, plain))
    seen = []
    torch.func.vmap(lambda x: seen.append(fp8.asks_for_gradients(x)) or x)(plain)
    assert seen == [True]


class OnGpu(Tensor):
    """A tensor that says it is on a GPU."""

    is_cuda = True  # type: ignore[assignment]


def test_a_dtensor_goes_to_the_op(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fp8, "_sm", lambda index: 100)
    a, b = (torch.zeros(16, 16).to(FP8).as_subclass(OnGpu) for _ in range(2))
    assert fp8.routes_to_torch(a, b)
    a.device_mesh = "a mesh"  # type: ignore[attr-defined]
    assert not fp8.routes_to_torch(a, b)


@pytest.mark.parametrize("sm", (80, 89, 90, 100))
def test_torch_runs_only_what_no_kernel_does(monkeypatch: pytest.MonkeyPatch, sm: int) -> None:
    monkeypatch.setattr(fp8, "_sm", lambda index: sm)
    a, b = (torch.zeros(16, 16).to(FP8).as_subclass(OnGpu) for _ in range(2))
    assert fp8.routes_to_torch(a, b) == (sm == 100)
    for block in ((128, 128), (128, 64), (1, 128)):
        assert fp8.blocks_route_to_torch(a, b, block) != (sm == 90 and block == (128, 128))
    here = torch.zeros(16, 16).to(FP8)
    assert not fp8.routes_to_torch(here, here)
    assert not fp8.blocks_route_to_torch(here, here, (3, 5))
