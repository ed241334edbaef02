"""Mixtures of experts from GPTQ and AWQ files, and gpt-oss, in the engine: the tokens of
transformers, by our method. vLLM 0.32 refuses all of them on a CPU without AMX.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.serving import engine
from benchmarks.serving.answers_experts import moe_config
from benchmarks.serving.mixtures import Watch, decided, mixture_folder, repeated
from benchmarks.serving.models import drawn
from mixed_gemm.integrations import vllm as plugin
from mixed_gemm.integrations.vllm import auto_gptq
from mixed_gemm.integrations.vllm.experts import MixedGemmExpertsMethod
from mixed_gemm.integrations.vllm.experts_asked import Asked
from mixed_gemm.integrations.vllm.experts_integers import integers

COUNT = 12
OURS = "MixedGemmExpertsMethod"
UNSUPPORTED = ", which vLLM refuses: ValueError: Unsupported quantization config: bits=8, sym=False"
NO_ORDER = ", which vLLM refuses: ValueError: GPTQ group activation ordering (desc_act=True) is no"


@dataclass(frozen=True)
class Case:
    """A folder, where $MIXED_GEMM_VLLM puts our method, and what the log says of it.

    near: 0, or by how much a call may differ from transformers' model, which multiplies experts
        one by one where their columns are in another order, and adds up in the dtype.
    """

    kind: str
    dtype: str
    options: dict[str, Any]
    said: str
    place: str = "first"
    near: float = 0


def gptq(bits: int, group_size: int, symmetric: bool = True, act_order: bool = False) -> Any:
    return {
        "file": "gptq", "bits": bits, "group_size": group_size, "symmetric": symmetric,
        "act_order": act_order,
    }  # fmt: skip


GPT_OSS = {"scheme": "mxfp4", "skip": lambda name, _: ".experts." not in name}
CASES = {
    "Mixtral GPTQ 4 bits g32": Case("mixtral", "bfloat16", gptq(4, 32), "4 bits"),
    "Qwen3-MoE GPTQ 8 bits, sym=False": Case(
        "qwen3_moe", "float32", gptq(8, -1, symmetric=False), "8 bits, zero points" + UNSUPPORTED,
        place="last",
    ),
    "Qwen3-MoE GPTQ 4 bits g32, act-order": Case(
        "qwen3_moe", "float16", gptq(4, 32, act_order=True), "4 bits, act-order" + NO_ORDER,
        place="auto", near=0.01,
    ),
    "Qwen3-MoE AWQ g32": Case(
        "qwen3_moe", "float16", {"file": "awq", "group_size": 32}, "4 bits, zero points"
    ),
    "gpt-oss MXFP4": Case("gpt_oss", "bfloat16", GPT_OSS, "mxfp4"),
}  # fmt: skip


def prompts() -> list[list[int]]:
    return drawn(500, 18)  # longer than a step of the engine takes


@pytest.mark.parametrize("name", CASES)
def test_tokens_are_those_of_transformers(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, said: Any
) -> None:
    case = CASES[name]
    monkeypatch.setenv(plugin.VARIABLE, case.place)
    plugin.register()
    folder = mixture_folder(tmp_path / "model", case.kind, case.dtype, **case.options)
    model = engine.load(folder, case.dtype)
    wanted = decided(model, prompts(), COUNT)
    with engine.engine(folder, case.dtype) as llm:
        watch = Watch(llm)
        found = engine.tokens(llm, wanted.prompt, COUNT)
    assert watch.methods == {OURS}
    assert f"mixed_gemm: {OURS} runs experts, {case.said}" in said.text
    assert len(watch.calls) >= COUNT * 2
    for theirs, ours in repeated(model, watch.calls):
        far = float((ours - theirs).abs().max() / theirs.abs().max())
        assert far <= case.near
    assert found == wanted.tokens, f"the best token led by {min(wanted.leads):.3f}"


def test_two_ranks_give_the_tokens_of_transformers(
    tmp_path: Path, installed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a part of every expert of gpt-oss, and one of them the bias of the sum."""
    monkeypatch.setenv(plugin.VARIABLE, "first")
    monkeypatch.setenv("PYTHONPATH", installed)  # the ranks are processes of their own
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    folder = mixture_folder(tmp_path / "model", "gpt_oss", "bfloat16", **GPT_OSS)
    wanted = decided(engine.load(folder, "bfloat16"), prompts(), COUNT)
    with engine.engine(folder, "bfloat16", tensor_parallel_size=2) as llm:
        assert engine.tokens(llm, wanted.prompt, COUNT) == wanted.tokens


def test_experts_that_are_not_quantized_are_left_to_vllm() -> None:
    settings: dict[str, Any] = {
        "bits": 4, "group_size": 32, "desc_act": False, "sym": True, "quant_method": "gptq",
    }  # fmt: skip
    config = auto_gptq.MixedGemmAutoGPTQConfig.from_config(settings)
    for names, is_ours in (
        ([], True),
        (["model.layers.0.mlp.experts.0.up_proj"], True),
        (["model.layers.0.self_attn.q_proj"], False),
    ):
        config.modules_in_block_to_quantize = names
        assert (config.layout_of_experts(None, "") is not None) == is_ours


@pytest.mark.parametrize("rank", [0, 1])
def test_the_bias_of_a_sum_over_ranks_is_on_the_first(rank: int) -> None:
    """vLLM's loader gives all of it to every rank, for GPTQ and AWQ files."""
    counts = dict.fromkeys(("num_experts", "num_local_experts", "num_logical_experts"), 2)
    moe = moe_config(tp=2, hidden_dim=128, intermediate_size=128, **counts)
    moe.moe_parallel_config = replace(moe.moe_parallel_config, tp_rank=rank)
    layout = integers({"bits": 4, "group_size": 32, "zero_point": True}, "awq")
    method = MixedGemmExpertsMethod(Asked(layout=layout, moe=moe, on_input=False, on_cpu=True))
    layer = torch.nn.Module()
    method.create_weights(layer, 2, 128, 64, torch.bfloat16, weight_loader=None)
    for parameter in layer.parameters():
        parameter.data.fill_(1)
    method.process_weights_after_loading(layer)
    assert layer.w13_bias.shape == (2, 128)
    assert (layer.w2_bias is None) == (rank > 0)


def test_off_leaves_files_to_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(plugin.VARIABLE, "off")
    if torch.cpu._is_amx_tile_supported():
        pytest.skip("vLLM has experts of its own here")
    folder = mixture_folder(tmp_path / "model", "qwen3_moe", "float16", file="awq", group_size=32)
    with (
        pytest.raises(NotImplementedError, match="No WNA16 MoE backend"),
        engine.engine(folder, "float16"),
    ):
        pass
