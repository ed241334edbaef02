"""The vLLM plug-in, against stub modules: registration, selection, weights as GPTQ, AWQ and
compressed-tensors layers hand them over, and every refusal.
"""

from __future__ import annotations

import logging
import pickle
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
from stub_vllm import (
    UINT4,
    UINT4B8,
    UINT8,
    UINT8B128,
    MPLinearLayerConfig,
    Parameter,
    PlatformEnum,
    ScalarType,
    Vllm,
)
from test_awq import gptq_words
from torch import Tensor

from mixed_gemm import _library, reference
from mixed_gemm.integrations import vllm as plugin

CUDA, CPU = PlatformEnum.CUDA, PlatformEnum.CPU


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> Vllm:
    monkeypatch.delenv(plugin.VARIABLE, raising=False)
    return Vllm(monkeypatch)


def config(k: int = 96, n: int = 72, **changes: Any) -> MPLinearLayerConfig:
    plain = MPLinearLayerConfig((k, n), (k, n), UINT4B8, torch.float16, 32, False, False)
    return replace(plain, **changes)


def our_kernel() -> Any:
    return sys.modules["mixed_gemm.integrations.vllm_kernel"].MixedGemmLinearKernel


# --- registration ------------------------------------------------------------------------------


def test_register_appends_once_and_pickles(vllm: Vllm) -> None:
    for _ in range(3):
        plugin.register()
    assert [k.__name__ for k in vllm.kernels[CUDA]] == ["Builtin", "MixedGemmLinearKernel"]
    assert [k.__name__ for k in vllm.kernels[CPU]] == ["MixedGemmLinearKernel"]
    assert pickle.loads(pickle.dumps(our_kernel())) is our_kernel()
    assert vllm.choose(config(group_size=128, k=128), CUDA).__name__ == "Builtin"
    assert vllm.choose(config(), CUDA) is our_kernel()


def test_register_first_comes_before_vllms_own(vllm: Vllm, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin.register()
    monkeypatch.setenv(plugin.VARIABLE, "first")
    plugin.register()
    plugin.register()
    assert [k.__name__ for k in vllm.kernels[CUDA]] == ["MixedGemmLinearKernel", "Builtin"]
    assert sys.modules["vllm.envs"].environment_variables[plugin.VARIABLE]() == "first"


def test_register_off_changes_nothing(vllm: Vllm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(plugin.VARIABLE, "off")
    plugin.register()
    assert [k.__name__ for k in vllm.kernels[CUDA]] == ["Builtin"]


def test_register_refuses_an_unknown_place(vllm: Vllm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(plugin.VARIABLE, "yes")
    with pytest.raises(ValueError, match="MIXED_GEMM_VLLM must be one of last, first, off"):
        plugin.register()


def test_register_leaves_another_vllm_alone(
    vllm: Vllm, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(sys.modules[plugin._LINEAR], "register_linear_kernel")
    with caplog.at_level(logging.WARNING):
        plugin.register()
    assert "another interface" in caplog.text and "register_linear_kernel" in caplog.text
    assert [k.__name__ for k in vllm.kernels[CUDA]] == ["Builtin"]


def test_the_entry_point_is_declared(repository: Any) -> None:
    text = (repository / "pyproject.toml").read_text()
    assert '[project.entry-points."vllm.general_plugins"]' in text
    assert 'mixed_gemm = "mixed_gemm.integrations.vllm:register"' in text


# --- refusals ----------------------------------------------------------------------------------

REFUSED = {
    "float32": ({"act_type": torch.float32}, "activations must be float16 or bfloat16"),
    "other output": ({"out_type": torch.float32}, "in and out"),
    "signed": ({"weight_type": ScalarType(4, 0, signed=True)}, "unsigned codes with 8 bias"),
    "no bias": ({"weight_type": UINT4}, "unsigned codes with 8 bias"),
    "bias and zeros": ({"zero_points": True}, "unsigned codes with no bias"),
    "float weight": ({"weight_type": ScalarType(8, 128, integer=False)}, "unsigned codes"),
    "three bits": ({"weight_type": ScalarType(3, 4)}, "bits must be 4 or 8, got 3"),
    "group": ({"group_size": 24}, "multiple of 16"),
    "split group": ({"group_size": 64}, "in_features per partition 96 is not divisible"),
    "split act-order": (
        {"has_g_idx": True, "full_weight_shape": (192, 72)},
        "act-order with input features split",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_can_implement_refuses_with_the_reason(vllm: Vllm, name: str) -> None:
    plugin.register()
    changes, reason = REFUSED[name]
    ok, text = our_kernel().can_implement(config(**changes))
    assert not ok
    assert reason in text


def test_can_implement_says_that_the_library_did_not_load(
    vllm: Vllm, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin.register()
    monkeypatch.setattr(_library, "available", False)
    monkeypatch.setattr(_library, "error", "no library")
    assert our_kernel().can_implement(config()) == (False, "mixed_gemm: no library")


# --- values ------------------------------------------------------------------------------------


def pack_columns(codes: Tensor, bits: int) -> Tensor:
    """``[rows, columns]`` packed along the columns, lowest bits first."""
    return gptq_words(codes.t(), bits).t()


def layer_of(
    c: MPLinearLayerConfig, codes: Tensor, scales: Tensor, zeros: Tensor | None, transposed: bool
) -> torch.nn.Module:
    """codes ``[K, N]``, scales and zero codes ``[G, N]``. transposed: as compressed-tensors creates
    its parameters ([N, ...]); otherwise as GPTQ does."""
    bits = c.weight_type.size_bits
    layer = torch.nn.Module()
    layer.w_q = (
        Parameter(gptq_words(codes, bits).t().contiguous(), input_dim=1, output_dim=0, packed_dim=1)
        if transposed
        else Parameter(gptq_words(codes, bits), input_dim=0, output_dim=1, packed_dim=0)
    )
    layer.w_s = (
        Parameter(scales.t().contiguous(), input_dim=1, output_dim=0)
        if transposed
        else Parameter(scales, input_dim=0, output_dim=1)
    )
    if zeros is not None:
        words = pack_columns(zeros, bits)
        layer.w_zp = (
            Parameter(words.t().contiguous(), input_dim=1, output_dim=0, packed_dim=0)
            if transposed
            else Parameter(words, input_dim=0, output_dim=1, packed_dim=1)
        )
    return layer


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("group_size", [32, -1])
@pytest.mark.parametrize("kind", [UINT4B8, UINT8B128, UINT4, UINT8])
def test_values_are_within_the_bound(
    vllm: Vllm, kind: ScalarType, group_size: int, dtype: torch.dtype, transposed: bool
) -> None:
    plugin.register()
    k, n, bits, asymmetric = 96, 72, kind.size_bits, kind.bias == 0
    groups, middle = 1 if group_size == -1 else k // group_size, 1 << (bits - 1)
    codes = torch.randint(0, 2**bits, (k, n))
    scales = ((0.5 + torch.rand(groups, n)) / 2**bits).to(dtype)
    zeros = torch.randint(0, 2**bits, (groups, n)) if asymmetric else None
    c = config(weight_type=kind, group_size=group_size, act_type=dtype, zero_points=asymmetric)
    kernel: Any = vllm.choose(c, CPU)(c, "w_q", "w_s", "w_zp" if asymmetric else None)
    layer = layer_of(c, codes, scales, zeros, transposed)
    kernel.process_weights_after_loading(layer)

    x, bias = torch.randn(2, 3, k).to(dtype), torch.randn(n).to(dtype)
    out = kernel.apply_weights(layer, x, bias)
    q = (codes - middle).t().to(torch.int8)
    signed = None if zeros is None else (zeros - middle).to(dtype)
    arguments = (x, q, scales, signed, bias)
    expected = reference.fpA_intB_gemm(*arguments, group_size=group_size)
    bound = reference.error_bound(*arguments, group_size=group_size)
    assert out.dtype == dtype
    assert reference.error_ratio(out, expected, bound) <= 1
    without = kernel.apply_weights(layer, x)
    torch.testing.assert_close(without + bias, out, rtol=2e-2, atol=2e-2)


def test_act_order_permutes_the_activations(vllm: Vllm) -> None:
    plugin.register()
    k, n, dtype = 96, 72, torch.float16
    codes, g_idx = torch.randint(0, 16, (k, n)), torch.randperm(k) // 32
    scales = ((0.5 + torch.rand(3, n)) / 16).to(dtype)
    c = config(has_g_idx=True)
    kernel: Any = vllm.choose(c, CPU)(c, "w_q", "w_s", None, "g_idx")
    layer = layer_of(c, codes, scales, None, False)
    layer.g_idx = torch.nn.Parameter(g_idx.to(torch.int32), requires_grad=False)
    kernel.process_weights_after_loading(layer)
    x = torch.randn(5, k).to(dtype)
    exact = x.double() @ ((codes - 8).double() * scales.double()[g_idx])
    order = torch.argsort(g_idx, stable=True)
    q = (codes - 8)[order].t().to(torch.int8)
    bound = reference.error_bound(x[:, order], q, scales, group_size=32)
    assert reference.error_ratio(kernel.apply_weights(layer, x), exact, bound) <= 1


def test_a_group_as_large_as_the_partition_is_per_channel(vllm: Vllm) -> None:
    plugin.register()
    c = config(group_size=96)
    codes = torch.randint(0, 16, (96, 72))
    layer = layer_of(c, codes, torch.ones(1, 72).half(), None, False)
    kernel: Any = vllm.choose(c, CPU)(c, "w_q", "w_s")
    kernel.process_weights_after_loading(layer)
    one_hot = torch.nn.functional.one_hot(torch.arange(96), 96).half()
    assert torch.equal(kernel.apply_weights(layer, one_hot), (codes - 8).half())
