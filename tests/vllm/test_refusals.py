"""Nothing of ours ends vLLM: another release, a library that is not there, layers that nobody has
thought of. Every one is told with the reason, in vLLM's log.
"""

from __future__ import annotations

import importlib
import json
import logging
import pickle
import subprocess
import sys
from dataclasses import field, make_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import vllm_interface
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vllm import envs, platforms
from vllm.model_executor.kernels import linear
from vllm.model_executor.layers import quantization
from vllm.model_executor.layers.fused_moe import fused_moe_method_base as method_base
from vllm.model_executor.layers.quantization import auto_awq, mxfp4
from vllm.scalar_type import scalar_types

from benchmarks.serving import answers
from mixed_gemm import _library
from mixed_gemm.integrations import vllm as plugin
from mixed_gemm.integrations.vllm import log, measured, offers
from mixed_gemm.integrations.vllm.interface import RELIES_ON
from mixed_gemm.integrations.vllm.needs import found_in_vllm

KERNELS = {row.kind: row for row in offers.KERNELS}
INDEX_SECONDS = 180
CONFIGS = {  # vLLM's names -> ours in the place of vLLM's
    "compressed-tensors": "MixedGemmCompressedTensorsConfig",
    "auto_gptq": "MixedGemmAutoGPTQConfig",
    "awq": "MixedGemmAutoAWQConfig",
    "auto_awq": "MixedGemmAutoAWQConfig",
    "gpt_oss_mxfp4": "MixedGemmGptOssConfig",
}


@pytest.fixture(autouse=True)
def heard(
    as_installed: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """caplog sees what vLLM logs."""
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
    log.say_once.cache_clear()
    caplog.set_level(logging.INFO)


def names(kind: str, platform: str = "CPU") -> list[str]:
    lists = getattr(linear, KERNELS[kind].listed)
    return [x.__name__ for x in lists.get(getattr(platforms.PlatformEnum, platform), [])]


def config(**changes: Any) -> Any:
    plain = linear.MPLinearLayerConfig(
        (96, 72), (96, 72), scalar_types.uint4b8, torch.float16, 32, False
    )
    return replace(plain, **changes)


# --- registration --------------------------------------------------------------------------------


def test_each_kernel_is_offered_once_and_pickles() -> None:
    for _ in range(3):
        plugin.register()
    for kind, row in KERNELS.items():
        for platform in offers.PLATFORMS:
            assert names(kind, platform).count(row.name) == 1
        assert pickle.loads(pickle.dumps(row.load())) is row.load()
    assert names("mp")[-1] == "MixedGemmLinearKernel"
    assert names("int8")[0] == "MixedGemmInt8LinearKernel"  # vLLM's own ends the process in float16
    assert names("int8", "CUDA")[-1] == "MixedGemmInt8LinearKernel"
    for kind, row in KERNELS.items():
        assert names(kind, "CUDA")[0] == row.ahead and row.ahead not in names(kind)
    assert quantization.QUANTIZATION_METHODS.count("mixed_gemm_gptq") == 1
    for name, wanted in CONFIGS.items():
        assert quantization.QUANTIZATION_METHODS.count(name) == 1
        config_class = quantization.get_quantization_config(name)
        assert pickle.loads(pickle.dumps(config_class)) is config_class
        assert config_class.__name__ == wanted


def test_first_and_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(plugin.VARIABLE, "off")
    plugin.register()
    assert not any(x.startswith("MixedGemm") for kind in KERNELS for x in names(kind))
    plugin.register()
    monkeypatch.setenv(plugin.VARIABLE, "first")
    plugin.register()
    assert [names(kind)[0] for kind in KERNELS] == [row.name for row in KERNELS.values()]
    assert envs.environment_variables[plugin.VARIABLE]() == "first"


def test_auto_asks_ours_before_where_they_are_measured_ahead(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin.register()
    ahead = KERNELS["mp"].load(KERNELS["mp"].ahead)
    rows = (
        measured.Measured("weight_only", "4 bits", "H100", {1: 0.9}),
        measured.Measured("weight_only", "8 bits", "H100", {1: 1.1}),
    )
    monkeypatch.setattr(measured, "MEASURED", rows)
    monkeypatch.setattr(platforms.current_platform, "get_device_name", lambda *_: "NVIDIA H100 NVL")
    for _ in range(2):
        assert ahead.can_implement(config()) == (True, None)
    eight = config(weight_type=scalar_types.uint8b128)
    able, reason = ahead.can_implement(eight)
    assert not able and "8 bits took 1.10 of the time of vLLM's own kernels on an H100" in reason
    assert KERNELS["mp"].load().can_implement(eight) == (True, None)
    three = config(weight_type=scalar_types.uint3b4)
    assert ahead.can_implement(three) == KERNELS["mp"].load().can_implement(three)
    said = "4 bits runs on MixedGemmLinearKernelMeasuredAhead: measured ahead of vLLM's own kernels"
    assert caplog.text.count(f"{said} on NVIDIA H100 NVL") == 1
    monkeypatch.setenv(plugin.VARIABLE, "last")
    plugin.register()
    assert KERNELS["mp"].ahead not in names("mp", "CUDA")


OF_EXPERTS = {"experts", "gptq_experts", "awq_experts", "gpt_oss"}
BROKEN = {  # what another vLLM may lack -> (module, name, offers that it costs)
    "no registration": (linear, "register_linear_kernel", {"weight_only", "int8", "fp8", "float4"}),
    "no list": (linear, "_POSSIBLE_KERNELS", {"weight_only"}),
    "no int8 list": (linear, "_POSSIBLE_INT8_KERNELS", {"int8"}),
    "no mxfp4 list": (linear, "_POSSIBLE_MXFP4_KERNELS", {"float4"}),
    "no base class": (linear, "MPLinearKernel", {"weight_only"}),
    "no config": (linear, "FP8ScaledMMLinearLayerConfig", {"fp8"}),
    "no configurations": (quantization, "register_quantization_config", {"gptq", *OF_EXPERTS}),
    "no method of experts": (method_base, "FusedMoEMethodBase", OF_EXPERTS),
    "no AWQ": (auto_awq, "AutoAWQConfig", {"awq_experts"}),
    "no gpt-oss": (mxfp4, "GptOssMxfp4Config", {"gpt_oss"}),
    "no maker of NVFP4": (linear, "init_nvfp4_linear_kernel", {"weight_only_nvfp4"}),
}


@pytest.mark.parametrize("what", BROKEN)
def test_another_release_costs_what_it_lacks(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    module, name, lost = BROKEN[what]
    monkeypatch.delattr(module, name)
    plugin.register()
    told = {x for x in RELIES_ON
            if f"mixed_gemm: {x} is not offered to this vLLM" in caplog.text}  # fmt: skip
    assert told == lost
    assert f"vLLM has no {module.__name__}.{name}" in caplog.text


def test_a_gptq_file_has_a_reader_where_experts_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    gptq = importlib.import_module("mixed_gemm.integrations.vllm.gptq")
    config = gptq.MixedGemmGPTQConfig({"bits": 4, "group_size": 32, "sym": False})
    for _ in range(2):
        assert config.get_quant_method(torch.nn.Identity(), "model.norm") is None
        monkeypatch.delattr(method_base, "FusedMoEMethodBase", raising=False)


def test_the_configuration_of_another_plug_in_stays(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = quantization._CUSTOMIZED_METHOD_TO_QUANT_CONFIG
    monkeypatch.setitem(there, "compressed-tensors", Other)
    plugin.register()
    assert there["compressed-tensors"] is Other
    assert "experts is not offered to this vLLM: NotImplementedError" in caplog.text
    assert "Other'> has the place of compressed-tensors already" in caplog.text


class Other:
    """A configuration that somebody else registered."""


@pytest.mark.parametrize("module", ["vllm.platforms", "vllm.envs", offers.LINEAR])
def test_a_vllm_without_the_interface_is_left_alone(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    plugin.register()
    assert "mixed_gemm: its kernels are not offered to this vLLM" in caplog.text


@pytest.mark.parametrize("error", [RuntimeError("no"), ValueError("no"), OSError("no")])
def test_register_lets_nothing_out(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def register_linear_kernel(kernel_class: Any, platform: Any, kernel_type: Any) -> None:
        raise error

    monkeypatch.setattr(linear, "register_linear_kernel", register_linear_kernel)
    plugin.register()
    assert f"{type(error).__name__}: no" in caplog.text


# --- questions -----------------------------------------------------------------------------------

ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=3),
    st.tuples(st.integers(-5, 2**40), st.integers(-5, 2**40)), st.just(torch.float16),
    st.sampled_from([scalar_types.uint4, scalar_types.int8, scalar_types.float4_e2m1f]),
)  # fmt: skip


@pytest.mark.parametrize("kind", KERNELS)
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_question_is_answered(kind: str, data: st.DataObject) -> None:
    """Descriptions with anything in any field, and things that describe nothing."""
    kernel = KERNELS[kind].load()
    kinds = {
        "mp": linear.MPLinearLayerConfig,
        "int8": linear.Int8ScaledMMLinearLayerConfig,
        "fp8": linear.FP8ScaledMMLinearLayerConfig,
        "mxfp4": linear.MxFp4LinearLayerConfig,
        "nvfp4": linear.NvFp4LinearLayerConfig,
    }
    fields = kinds[kind].__dataclass_fields__
    asked = data.draw(
        st.one_of(ANYTHING, st.builds(kinds[kind], **dict.fromkeys(fields, ANYTHING)))
    )
    able, reason = kernel.can_implement(asked)
    assert able in (True, False)
    assert able or str(reason).startswith("mixed_gemm: ")


def test_activations_of_other_formats_are_refused() -> None:
    """Those of MXFP4 stay as they are, with a word, as with vLLM's Marlin."""
    kernel = KERNELS["mxfp4"].load()
    keys: Any = importlib.import_module("vllm.model_executor.layers.quantization.utils.quant_utils")
    for key in (None, keys.kMxfp4Dynamic):
        assert kernel.can_implement(linear.MxFp4LinearLayerConfig(key)) == (True, None)
    able, reason = kernel.can_implement(linear.MxFp4LinearLayerConfig(keys.kMxfp6E2M3Dynamic))
    assert not able and "activations must stay in their dtype or be MXFP4" in str(reason)


def test_a_field_of_a_later_release_is_refused_when_it_is_set(
    caplog: pytest.LogCaptureFixture,
) -> None:
    later = make_dataclass(
        "Later", [("rotation", Any, field(default=None))], bases=(linear.MPLinearLayerConfig,)
    )
    plain = vars(config())
    kernel = KERNELS["mp"].load()
    assert kernel.can_implement(later(**plain)) == (True, None)
    able, reason = kernel.can_implement(later(**plain, rotation="hadamard"))
    assert not able and "vLLM asks for rotation='hadamard', which is not known here" in reason
    assert "MixedGemmLinearKernel does not take a layer: vLLM asks for rotation" in caplog.text


@pytest.mark.parametrize("kind", KERNELS)
def test_without_a_library_the_answer_is_no(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(_library, "available", False)
    monkeypatch.setattr(_library, "error", "no library")
    assert KERNELS[kind].load().can_implement(config()) == (False, "mixed_gemm: no library")


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.dictionaries(
        st.sampled_from(["quant_method", "bits", "group_size", "sym", "desc_act", "dynamic"]),
        st.one_of(ANYTHING, st.sampled_from(["gptq", 4, 8, 32, -1])),
    )
)
def test_every_quantization_config_is_answered(asked: dict[str, Any]) -> None:
    gptq = importlib.import_module("mixed_gemm.integrations.vllm.gptq")
    for given_config in (asked, None):
        for user in (None, "gptq", "awq"):
            found = gptq.MixedGemmGPTQConfig.override_quantization_method(given_config, user)
            assert found in (None, gptq.NAME)


@pytest.mark.parametrize(
    "more", [{"rotation": "hadamard"}, {"adapter": {"rank": 8}}, {"checkpoint_format": "marlin"}]
)
def test_gptq_files_that_ask_for_what_is_not_done_are_left_to_vllm(more: dict[str, Any]) -> None:
    gptq = importlib.import_module("mixed_gemm.integrations.vllm.gptq")
    asked = {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False}
    override = gptq.MixedGemmGPTQConfig.override_quantization_method
    assert override(asked, None) == gptq.NAME
    assert override({**asked, **more}, None) is None
    assert next(iter(more)) in gptq.why_not_gptq({**asked, **more})


# --- what is written down ------------------------------------------------------------------------


def test_answers_of_the_page(monkeypatch: pytest.MonkeyPatch, repository: Path) -> None:
    monkeypatch.setenv(plugin.VARIABLE, "first")
    file = repository / "benchmarks" / "results" / "vllm_answers.json"
    assert answers.answers() == json.loads(file.read_text())


def test_source_and_modules_agree() -> None:
    """What the reader of wheels finds in this vLLM's source is what a process finds in it."""
    root = Path(importlib.import_module("vllm").__file__ or "").parent
    wanted = [need.module.replace(".", "/") for need in vllm_interface.needs()]
    files = {
        str(path.relative_to(root.parent)): path.read_text()
        for path in root.rglob("*.py")
        if any(vllm_interface._belongs(str(path.relative_to(root.parent)), x) for x in wanted)
    }
    release = vllm_interface.Release(files)
    for need in vllm_interface.needs():
        read, found = release.found(need), found_in_vllm(need)
        if need.optional and read is None and found is None:
            continue
        assert read is not None and found is not None, need
        same = set(read) == set(found) & {*read, *need.items, *need.more}
        assert same or need.kind == "members", (need, read, found)
        assert not vllm_interface.lacking(need, found), need


def test_the_newest_release_has_what_we_rely_on(repository: Path) -> None:
    try:
        done = subprocess.run(
            [sys.executable, str(repository / "tools" / "vllm_interface.py"), "check"],
            capture_output=True, text=True, check=False, timeout=INDEX_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        pytest.skip(f"the index does not answer within {INDEX_SECONDS} s")
    if "as we rely on" not in done.stdout and "differences" not in done.stdout:
        pytest.skip(f"the index does not answer: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stdout
