"""The vLLM plug-in, against stub modules: registration, selection, weights as GPTQ, AWQ and
compressed-tensors layers hand them over, every refusal, and that no exception of ours reaches vLLM.
"""

from __future__ import annotations

import logging
import pickle
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
from problems.awq import gptq_words
from support.stub_vllm import (
    UINT4,
    UINT4B8,
    UINT8,
    UINT8B128,
    ActOrderConfig,
    MPLinearLayerConfig,
    Parameter,
    PlatformEnum,
    ScalarType,
    Vllm,
    uint,
)
from torch import Tensor

from mixed_gemm import _library, reference
from mixed_gemm.integrations import vllm as plugin

CUDA, CPU = PlatformEnum.CUDA, PlatformEnum.CPU


@pytest.fixture(params=[False, True], ids=["0.32", "0.29"])
def vllm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Vllm:
    monkeypatch.delenv(plugin.VARIABLE, raising=False)
    return Vllm(monkeypatch, act_order=request.param)


@pytest.fixture
def old_vllm(monkeypatch: pytest.MonkeyPatch) -> Vllm:
    monkeypatch.delenv(plugin.VARIABLE, raising=False)
    return Vllm(monkeypatch, act_order=True)


def config(vllm: Vllm, k: int = 96, n: int = 72, **changes: Any) -> Any:
    plain = MPLinearLayerConfig((k, n), (k, n), UINT4B8, torch.float16, 32, False)
    if vllm.config_type is ActOrderConfig:
        plain = ActOrderConfig((k, n), (k, n), UINT4B8, torch.float16, 32, False, False)
    return replace(plain, **changes)


def make(vllm: Vllm, c: Any, **names: str) -> Any:
    """The kernel that vLLM would choose, constructed as its layers do."""
    names = {"w_q_param_name": "w_q", "w_s_param_name": "w_s", "w_zp_param_name": "w_zp", **names}
    return vllm.choose(c, CPU)(c, **names)


def our_kernel() -> Any:
    return sys.modules["mixed_gemm.integrations.vllm_kernel"].MixedGemmLinearKernel


# --- registration ------------------------------------------------------------------------------


def test_register_appends_once_and_pickles(vllm: Vllm) -> None:
    for _ in range(3):
        plugin.register()
    assert [k.__name__ for k in vllm.kernels[CUDA]] == ["Builtin", "MixedGemmLinearKernel"]
    assert [k.__name__ for k in vllm.kernels[CPU]] == ["MixedGemmLinearKernel"]
    assert pickle.loads(pickle.dumps(our_kernel())) is our_kernel()
    assert vllm.choose(config(vllm, group_size=128, k=128), CUDA).__name__ == "Builtin"
    assert vllm.choose(config(vllm), CUDA) is our_kernel()


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


def test_register_warns_of_an_unknown_place_and_uses_the_default(
    vllm: Vllm, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(plugin.VARIABLE, "yes")
    plugin._warn_of_place.cache_clear()
    with caplog.at_level(logging.WARNING):
        plugin.register()
        plugin.register()
    assert caplog.text.count("MIXED_GEMM_VLLM must be one of last, first, off, got 'yes'") == 1
    assert [k.__name__ for k in vllm.kernels[CUDA]] == ["Builtin", "MixedGemmLinearKernel"]
    assert sys.modules["vllm.envs"].environment_variables[plugin.VARIABLE]() == "last"


BROKEN = {  # what another vLLM may lack -> how it shows
    "no registration": (plugin._LINEAR, "register_linear_kernel", "register_linear_kernel"),
    "no kernel lists": (plugin._LINEAR, "_POSSIBLE_KERNELS", "_POSSIBLE_KERNELS"),
    "no base class": (plugin._LINEAR, "MPLinearKernel", "MPLinearKernel"),
    "no permutation": ("vllm.model_executor.parameter", "permute_param_layout_", "permute_param"),
    "no platforms": ("vllm.platforms", "PlatformEnum", "PlatformEnum"),
    "no variables": ("vllm.envs", "environment_variables", "environment_variables"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_register_leaves_another_vllm_alone(
    vllm: Vllm, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    module, attribute, text = BROKEN[what]
    monkeypatch.delattr(sys.modules[module], attribute)
    with caplog.at_level(logging.WARNING):
        plugin.register()
    assert "mixed_gemm: its kernel is not offered to this vLLM" in caplog.text
    assert text in caplog.text
    assert [k.__name__ for k in vllm.kernels[CUDA]] == ["Builtin"]


@pytest.mark.parametrize("error", [RuntimeError("no"), ValueError("no"), OSError("no")])
def test_register_lets_nothing_out(
    vllm: Vllm,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(sys.modules[plugin._LINEAR], "register_linear_kernel", fail)
    with caplog.at_level(logging.WARNING):
        plugin.register()
    assert f"{type(error).__name__}: no" in caplog.text


def test_the_entry_point_is_declared(repository: Any) -> None:
    text = (repository / "pyproject.toml").read_text()
    assert '[project.entry-points."vllm.general_plugins"]' in text
    assert 'mixed_gemm = "mixed_gemm.integrations.vllm:register"' in text


# --- refusals ----------------------------------------------------------------------------------

REFUSED = {
    "float32": ({"act_type": torch.float32}, "activations must be float16 or bfloat16"),
    "int8 activations": ({"act_type": torch.int8}, "activations must be float16 or bfloat16"),
    "other output": ({"out_type": torch.float32}, "in and out"),
    "signed": ({"weight_type": ScalarType(0, 3, True, 0)}, "unsigned codes with 8 bias"),
    "no bias": ({"weight_type": UINT4}, "unsigned codes with 8 bias"),
    "bias and zeros": ({"zero_points": True}, "unsigned codes with no bias"),
    "float weight": ({"weight_type": ScalarType(4, 3, True, 0)}, "unsigned codes"),
    "three bits": ({"weight_type": uint(3, 4)}, "bits must be 4 or 8, got 3"),
    "group": ({"group_size": 24}, "multiple of 16"),
    "group of 0": ({"group_size": 0}, "group_size must be -1 or positive, got 0"),
    "group of -2": ({"group_size": -2}, "group_size must be -1 or positive, got -2"),
    "split group": ({"group_size": 64}, "in_features per partition 96 is not divisible"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_can_implement_refuses_with_the_reason(vllm: Vllm, name: str) -> None:
    plugin.register()
    changes, reason = REFUSED[name]
    ok, text = our_kernel().can_implement(config(vllm, **changes))
    assert not ok
    assert reason in text


def test_can_implement_refuses_act_order_whose_inputs_are_split(old_vllm: Vllm) -> None:
    plugin.register()
    c = config(old_vllm, has_g_idx=True, full_weight_shape=(192, 72))
    ok, text = our_kernel().can_implement(c)
    assert not ok and "act-order with input features split" in text


ODD = {  # no config of any vLLM known to us
    "nothing": lambda c: None,
    "no fields": lambda c: object(),
    "a shape of one number": lambda c: replace(c, partition_weight_shape=(96,)),
    "a shape of None": lambda c: replace(c, partition_weight_shape=None),
    "a shape of words": lambda c: replace(c, partition_weight_shape=("a", "b")),
    "negative sizes": lambda c: replace(c, partition_weight_shape=(-96, -72)),
    "huge sizes": lambda c: replace(c, partition_weight_shape=(2**70, 2**70), group_size=-1),
    "no group": lambda c: replace(c, group_size=None),
    "a type of None": lambda c: replace(c, weight_type=None),
    "a type of torch": lambda c: replace(c, weight_type=torch.uint8),
    "bits of 10^9": lambda c: replace(c, weight_type=uint(10**9)),
    "no activations": lambda c: replace(c, act_type=None),
}


@pytest.mark.parametrize("name", ODD)
def test_can_implement_answers_whatever_it_is_asked(vllm: Vllm, name: str) -> None:
    plugin.register()
    ok, text = our_kernel().can_implement(ODD[name](config(vllm)))
    assert ok is False
    assert text.startswith("mixed_gemm: ")


def test_can_implement_answers_when_the_planner_fails(
    vllm: Vllm, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin.register()

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no plan today")

    monkeypatch.setattr(sys.modules["mixed_gemm.integrations.vllm_kernel"], "why_not", fail)
    ok, text = our_kernel().can_implement(config(vllm))
    assert (
        not ok and text == "mixed_gemm: the layer could not be judged: RuntimeError: no plan today"
    )


def test_can_implement_says_that_the_library_did_not_load(
    vllm: Vllm, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin.register()
    monkeypatch.setattr(_library, "available", False)
    monkeypatch.setattr(_library, "error", "no library")
    assert our_kernel().can_implement(config(vllm)) == (False, "mixed_gemm: no library")


# --- values ------------------------------------------------------------------------------------


def pack_columns(codes: Tensor, bits: int) -> Tensor:
    """``[rows, columns]`` packed along the columns, lowest bits first, the last word filled up."""
    filled = torch.nn.functional.pad(codes, (0, -codes.shape[1] % (32 // bits)))
    return gptq_words(filled.t(), bits).t()


def layer_of(
    c: Any, codes: Tensor, scales: Tensor, zeros: Tensor | None, transposed: bool
) -> torch.nn.Module:
    """codes ``[K, N]``, scales and zero codes ``[G, N]``. transposed: as compressed-tensors creates
    its parameters ([N, ...]); otherwise as GPTQ does."""
    bits = c.weight_type.size_bits
    layer = torch.nn.Module()
    words = pack_columns(codes.t(), bits)
    layer.w_q = (
        Parameter(words.contiguous(), input_dim=1, output_dim=0, packed_dim=1)
        if transposed
        else Parameter(words.t().contiguous(), input_dim=0, output_dim=1, packed_dim=0)
    )
    layer.w_s = (
        Parameter(scales.t().contiguous(), input_dim=1, output_dim=0)
        if transposed
        else Parameter(scales, output_dim=1)  # as where every rank holds all of them
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
@pytest.mark.parametrize(("k", "n", "group_size"), [(96, 72, 32), (96, 72, -1), (90, 70, -1)])
@pytest.mark.parametrize("kind", [UINT4B8, UINT8B128, UINT4, UINT8])
def test_values_are_within_the_bound(
    vllm: Vllm,
    kind: ScalarType,
    k: int,
    n: int,
    group_size: int,
    dtype: torch.dtype,
    transposed: bool,
) -> None:
    plugin.register()
    bits, asymmetric = kind.size_bits, kind.bias == 0
    groups, middle = 1 if group_size == -1 else k // group_size, 1 << (bits - 1)
    codes = torch.randint(0, 2**bits, (k, n))
    scales = ((0.5 + torch.rand(groups, n)) / 2**bits).to(dtype)
    zeros = torch.randint(0, 2**bits, (groups, n)) if asymmetric else None
    c = config(
        vllm, k, n, weight_type=kind, group_size=group_size, act_type=dtype, zero_points=asymmetric
    )
    kernel = make(vllm, c)
    layer = layer_of(c, codes, scales, zeros, transposed)
    kernel.process_weights_after_loading(layer)

    x, bias = torch.randn(2, 3, k).to(dtype), torch.randn(n).to(dtype)
    q = (codes - middle).t().to(torch.int8)
    signed = None if zeros is None else (zeros - middle).to(dtype)
    for added in (bias, None):
        out = kernel.apply_weights(layer, x, added)
        arguments = (x, q, scales, signed, added)
        expected = reference.fpA_intB_gemm(*arguments, group_size=group_size)
        bound = reference.error_bound(*arguments, group_size=group_size)
        assert out.dtype == dtype
        assert reference.error_ratio(out, expected, bound) <= 1


def test_act_order_permutes_the_activations(old_vllm: Vllm) -> None:
    plugin.register()
    k, n, dtype = 96, 72, torch.float16
    codes, g_idx = torch.randint(0, 16, (k, n)), torch.randperm(k) // 32
    scales = ((0.5 + torch.rand(3, n)) / 16).to(dtype)
    c = config(old_vllm, has_g_idx=True)
    kernel = make(old_vllm, c, w_gidx_param_name="g_idx")
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
    c = config(vllm, group_size=96)
    codes = torch.randint(0, 16, (96, 72))
    layer = layer_of(c, codes, torch.ones(1, 72).half(), None, False)
    kernel = make(vllm, c)
    kernel.process_weights_after_loading(layer)
    one_hot = torch.nn.functional.one_hot(torch.arange(96), 96).half()
    assert torch.equal(kernel.apply_weights(layer, one_hot), (codes - 8).half())


# --- weights that are not those of the config --------------------------------------------------


def wrong_layers(c: Any) -> dict[str, tuple[torch.nn.Module, str]]:
    """What is wrong -> a layer and what the message says."""

    def layer(**changes: Any) -> torch.nn.Module:
        built = layer_of(
            c,
            torch.zeros(96, 72).long(),
            torch.ones(3, 72).half(),
            torch.zeros(3, 72).long(),
            False,
        )
        for name, value in changes.items():
            setattr(built, name, value)
        return built

    short = Parameter(
        torch.zeros(11, 72, dtype=torch.int32), input_dim=0, output_dim=1, packed_dim=0
    )
    narrow = Parameter(torch.ones(3, 71).half(), input_dim=0, output_dim=1)
    few = Parameter(torch.zeros(2, 9, dtype=torch.int32), input_dim=0, output_dim=1, packed_dim=1)
    return {
        "no codes": (layer(w_q=None), "the layer has no parameter 'w_q'"),
        "no scales": (layer(w_s=None), "the layer has no parameter 'w_s'"),
        "no zeros": (layer(w_zp=None), "the layer has no parameter 'w_zp'"),
        "short codes": (layer(w_q=short), "'w_q' must be [12, 72], got [11, 72]"),
        "narrow scales": (layer(w_s=narrow), "'w_s' must be [3, 72], got [3, 71]"),
        "few zeros": (layer(w_zp=few), "'w_zp' must be [3, 9], got [2, 9]"),
    }


@pytest.mark.parametrize(
    "what", ["no codes", "no scales", "no zeros", "short codes", "narrow scales", "few zeros"]
)
def test_weights_that_do_not_fit_are_named(vllm: Vllm, what: str) -> None:
    plugin.register()
    c = config(vllm, weight_type=UINT4, zero_points=True)
    kernel = make(vllm, c)
    layer, text = wrong_layers(c)[what]
    with pytest.raises(ValueError) as error:
        kernel.process_weights_after_loading(layer)
    assert str(error.value) == f"mixed_gemm: {text}"
