"""Mixtures of experts in the engine: the tokens of transformers, by our method, and in every call
of a layer of experts the bits of transformers' model with ``mixed_gemm``'s experts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.serving import engine
from benchmarks.serving.mixtures import Watch, decided, mixture_folder, same_bits
from benchmarks.serving.models import drawn
from mixed_gemm.integrations import vllm as plugin

COUNT = 12
OURS = "MixedGemmExpertsMethod"
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "Mixtral W4A16 g32": ("mixtral", "bfloat16", {"bits": 4, "group_size": 32}),
    "Qwen3-MoE W4A16 g64": ("qwen3_moe", "bfloat16", {"bits": 4, "group_size": 64}),
    "Qwen3-MoE W4A16 g32, zero points": (
        "qwen3_moe", "float16", {"bits": 4, "group_size": 32, "symmetric": False},
    ),
    "Mixtral W4A16 channel": ("mixtral", "float32", {"bits": 4, "group_size": -1}),
    "Mixtral W8A16 g64": ("mixtral", "float16", {"bits": 8, "group_size": 64}),
    "Qwen3-MoE W8A16 channel, zero points": (
        "qwen3_moe", "float32", {"bits": 8, "group_size": -1, "symmetric": False},
    ),
    "Qwen3-MoE MXFP4": ("qwen3_moe", "float16", {"scheme": "mxfp4"}),
    "Mixtral NVFP4": ("mixtral", "float16", {"scheme": "nvfp4"}),
}  # fmt: skip


@pytest.fixture(autouse=True)
def first(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(plugin.VARIABLE, "first")
    plugin.register()
    yield


def prompts() -> list[list[int]]:
    return drawn(2000, 18)  # longer than a step of the engine takes


@pytest.mark.parametrize("name", CASES)
def test_tokens_are_those_of_transformers(tmp_path: Path, name: str) -> None:
    kind, dtype, options = CASES[name]
    folder = mixture_folder(tmp_path / "model", kind, dtype, **options)
    model = engine.load(folder, dtype)
    wanted = decided(model, prompts(), COUNT)
    with engine.engine(folder, dtype) as llm:
        watch = Watch(llm)
        found = engine.tokens(llm, wanted.prompt, COUNT)
        calls = list(watch.calls)
        assert engine.tokens(llm, wanted.prompt, COUNT) == found  # from the cache of prefixes
    assert watch.methods == {OURS}
    assert same_bits(model, calls) == len(calls) >= COUNT * 2
    assert found == wanted.tokens, f"the best token led by {min(wanted.leads):.3f}"


def test_a_compiled_model_has_no_graph_breaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path / "cache"))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    folder = mixture_folder(tmp_path / "model", "mixtral", "float16", bits=4, group_size=32)
    wanted = decided(engine.load(folder, "float16"), prompts(), COUNT)
    with engine.engine(folder, "float16", enforce_eager=False) as llm:
        assert engine.tokens(llm, wanted.prompt, COUNT) == wanted.tokens
    counters = torch._dynamo.utils.counters
    assert counters["stats"]["unique_graphs"] > 0
    assert not counters["graph_break"]


@pytest.mark.parametrize("by_expert", [False, True])
def test_two_ranks_give_the_tokens_of_transformers(
    tmp_path: Path, installed: str, monkeypatch: pytest.MonkeyPatch, by_expert: bool
) -> None:
    """Each has a part of every expert; or some of the experts whole, by vLLM's map of them."""
    monkeypatch.setenv("PYTHONPATH", installed)  # the ranks are processes of their own
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    folder = mixture_folder(tmp_path / "model", "qwen3_moe", "float16", bits=4, group_size=32)
    wanted = decided(engine.load(folder, "float16"), prompts(), COUNT)
    ranks = {"tensor_parallel_size": 2, "enable_expert_parallel": by_expert}
    with engine.engine(folder, "float16", **ranks) as llm:
        assert engine.tokens(llm, wanted.prompt, COUNT) == wanted.tokens


def methods(folder: Path, dtype: str) -> set[str]:
    with engine.engine(folder, dtype) as llm:
        watch = Watch(llm)
        engine.tokens(llm, [1, 2, 3], 2)
        return watch.methods


def test_last_serves_experts_that_vllms_own_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Any
) -> None:
    """On a CPU vLLM 0.32 has none for groups of 32, and only with AMX others of 4 bits."""
    monkeypatch.setenv(plugin.VARIABLE, "last")
    folder = mixture_folder(tmp_path / "g32", "qwen3_moe", "bfloat16", bits=4, group_size=32)
    assert methods(folder, "bfloat16") == {OURS}
    refused = "which vLLM refuses: NotImplementedError: No WNA16 MoE"
    assert f"{OURS} runs experts, 4 bits, {refused}" in said.text
    if torch.cpu._is_amx_tile_supported():
        folder = mixture_folder(tmp_path / "g64", "qwen3_moe", "bfloat16", bits=4, group_size=64)
        assert methods(folder, "bfloat16") == {"CompressedTensorsWNA16MoEMethod"}


def test_last_serves_mxfp4_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM 0.32 says yes to it there, and ends when it packs the weights."""
    monkeypatch.setenv(plugin.VARIABLE, "last")
    folder = mixture_folder(tmp_path / "model", "mixtral", "bfloat16", scheme="mxfp4")
    assert methods(folder, "bfloat16") == {OURS}


def test_what_cannot_be_served_is_left_to_vllm_with_a_word(tmp_path: Path, said: Any) -> None:
    folder = mixture_folder(tmp_path / "model", "mixtral", "bfloat16", scheme="w8a8")
    try:
        assert methods(folder, "bfloat16") == {"CompressedTensorsW8A8Int8MoEMethod"}
    except NotImplementedError as error:  # vLLM's own answer, by the instructions of the CPU
        assert "No Int8 MoE backend" in str(error)
    assert f"{OURS} does not take a layer: activations of experts must stay" in said.text
