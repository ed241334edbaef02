"""A tensor keeps its sizes when its storage is freed (FSDP does that between steps). Every module,
and what prepares its weights, refuses it by name: none reads it, none takes it as absent. That the
ops do is the matter of test_refusals.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mixed_gemm
from mixed_gemm import Scheme
from mixed_gemm.weights import Fp8Weight, W8A8Weight


def freed(tensor: Tensor) -> Tensor:
    tensor.untyped_storage().resize_(0)
    return tensor


def linear(permutation: bool = False) -> mixed_gemm.Linear:
    return mixed_gemm.Linear(
        64,
        40,
        group_size=32,
        zero_mode="sub",
        pre_scale=True,
        permutation=permutation,
        dtype=torch.float16,
    )


def w8a8(activations: str) -> mixed_gemm.Linear:
    return mixed_gemm.Linear(
        64, 40, scheme="w8a8", activations=activations, pre_scale=True, dtype=torch.float16
    )


def fp8(scheme: Scheme) -> mixed_gemm.Linear:
    return mixed_gemm.Linear(64, 40, scheme=scheme, dtype=torch.float16)


def conv(padding: Any = 1) -> mixed_gemm.Conv2d:
    return mixed_gemm.Conv2d(
        16, 8, 3, padding=padding, block_size=16, offsets=True, dtype=torch.float16
    )


ROWS, IMAGES = (3, 64), (1, 16, 5, 5)
MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "Linear": (linear, ROWS),
    "Linear, act-order": (lambda: linear(True), ROWS),
    "Linear, w8a8 dynamic": (lambda: w8a8("dynamic"), ROWS),
    "Linear, w8a8 dynamic_azp": (lambda: w8a8("dynamic_azp"), ROWS),
    "Linear, w8a8 static_azp": (lambda: w8a8("static_azp"), ROWS),
    "Linear, fp8 dynamic": (lambda: fp8(Scheme.fp8()), ROWS),
    "Linear, fp8 static": (lambda: fp8(Scheme.fp8("static")), ROWS),
    "Linear, fp8 blocks": (lambda: fp8(Scheme.fp8(strategy="block", block=(16, 32))), ROWS),
    "Linear, w8a8_block": (
        lambda: mixed_gemm.Linear(64, 40, scheme=Scheme.w8a8_block(32), dtype=torch.float16),
        ROWS,
    ),
    "Conv2d": (conv, IMAGES),
    "Conv2d that pads itself": (
        lambda: mixed_gemm.Conv2d(16, 8, 2, padding="same", bits=4, dtype=torch.float16),
        IMAGES,
    ),
}


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    found = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {**found.pop("weight").tensors(), **found}  # type: ignore[attr-defined]


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("kind", MODULES)
def test_a_module_refuses_each_of_its_tensors_and_its_input(kind: str, grad: bool) -> None:
    make, shape = MODULES[kind]
    with torch.set_grad_enabled(grad):
        for name in [*tensors_of(make()), "input"]:
            module, x = make(), torch.randn(shape).half()
            freed(x if name == "input" else tensors_of(module)[name].data)
            with pytest.raises(ValueError, match=r"must have a storage of \d+ bytes") as caught:
                module(x)
            argument = str(caught.value).partition(": ")[2].split()[0]
            renamed = {
                "input": ("a", "input"),
                "weight_int8": ("b",),
                "weight_scale": ("scale_b",),
                "scales": ("scale_b",),
                "input_scale": ("scale", "scale_a"),
                "input_azp": ("azp",),
            }
            assert argument in (name, *renamed.get(name, ())), caught.value
        assert make()(torch.randn(shape).half()).isfinite().all()


PREPARE: dict[str, tuple[Callable[[], Tensor], Callable[[Tensor], Any]]] = {
    "quantize_weight": (lambda: torch.ones(16, 128), mixed_gemm.quantize_weight),
    "quantize_conv_weight": (lambda: torch.ones(16, 8, 3, 3), mixed_gemm.quantize_conv_weight),
    "azp_adjustment": (
        lambda: torch.ones(16, 128, dtype=torch.int8),
        mixed_gemm.ops.azp_adjustment,
    ),
    "block_sums": (
        lambda: torch.ones(128, 16, dtype=torch.int8),
        lambda q: mixed_gemm.ops.block_sums(q, 32),
    ),
    "weight_sums": (
        lambda: torch.ones(16, 8, 3, 3, dtype=torch.int8),
        mixed_gemm.ops.weight_sums,
    ),
    "Linear": (
        lambda: torch.ones(16, 128, dtype=torch.int8),
        lambda q: mixed_gemm.Linear.from_quantized(q, torch.ones(1, 16), bits=8),
    ),
    "Linear's scales": (
        lambda: torch.ones(1, 16),
        lambda scales: mixed_gemm.Linear.from_quantized(
            torch.ones(16, 128, dtype=torch.int8), scales, bits=8
        ),
    ),
    "Fp8Weight": (
        lambda: torch.ones(16, 128).to(torch.float8_e4m3fn),
        lambda q: Fp8Weight.from_quantized(q, torch.ones(16), scheme=Scheme.fp8()),
    ),
    "W8A8Weight": (
        lambda: torch.ones(16, 128, dtype=torch.int8),
        lambda q: W8A8Weight.from_quantized(q, torch.ones(16), scheme=Scheme.w8a8()),
    ),
    "Conv2d": (
        lambda: torch.ones(16, 8, 3, 3, dtype=torch.int8),
        lambda q: mixed_gemm.Conv2d.from_quantized(q, torch.ones(1, 16), bits=8),
    ),
}


@pytest.mark.parametrize("name", PREPARE)
def test_what_prepares_weights_refuses_them_too(name: str) -> None:
    make, call = PREPARE[name]
    call(make())
    with pytest.raises(ValueError, match="must have a storage"):
        call(freed(make()))


@pytest.mark.parametrize("kind", MODULES)
def test_dequantize_refuses_too(kind: str) -> None:
    make, _ = MODULES[kind]
    unread = ("bias", "azp_adj", "b_sums", "input_scale", "input_azp")
    for name in tensors_of(make()):
        module: Any = make()
        freed(tensors_of(module)[name].data)
        if name in unread:
            module.dequantize()
            continue
        with pytest.raises(ValueError, match=rf"{name}|b_packed.* must have a storage"):
            module.dequantize()
