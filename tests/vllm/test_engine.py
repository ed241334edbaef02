"""Every kind of quantized model in the engine: the tokens of transformers, by the kernel that is
meant to run, and in every call of a linear layer the bits of ``mixed_gemm.Linear``.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.serving import bits, engine
from benchmarks.serving.models import SMALL, prompts, write
from benchmarks.serving.rows import ROWS, Row
from mixed_gemm.integrations import vllm as plugin

COUNT = 12
# A last bit of bfloat16 between the layers moves an activation by a step of float8, which may be
# 1/16 of it: no lead of a random model outlasts more tokens.
COUNT_OF_FLOAT8 = 4
WEIGHTS = {row.name: row for row in ROWS}
# The dtypes take turns, so that each row runs once and each dtype with a third of them; what all of
# them give, benchmarks/serving/tokens.py notes.
CASES = [(name, row.dtypes[i % len(row.dtypes)]) for i, (name, row) in enumerate(WEIGHTS.items())]


@pytest.fixture(scope="module", autouse=True)
def first() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(plugin.VARIABLE, "first")
        plugin.register()
        yield


def kernels(llm: Any) -> set[str]:
    """Who runs the linear layers of the model in the engine."""

    def names(worker: Any) -> set[str]:
        found = set()
        for module in worker.get_model().modules():
            method = getattr(module, "quant_method", None)
            scheme = getattr(module, "scheme", None)
            for owner in (method, scheme):
                for attribute in ("kernel", "fp8_linear"):
                    kernel = getattr(owner, attribute, None)
                    found |= {type(kernel).__name__} if kernel is not None else set()
            if type(method).__name__ == "MixedGemmGPTQLinearMethod":
                found.add("mixed_gemm_gptq")
        return found

    return set().union(*llm.collective_rpc(names))


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_tokens_are_those_of_transformers(
    small: Path, tmp_path: Path, name: str, dtype: str
) -> None:
    row: Row = WEIGHTS[name]
    count = COUNT_OF_FLOAT8 if name.startswith("FP8") else COUNT
    folder = write(row, small, tmp_path / "model")
    model = engine.load(folder, dtype)
    wanted = engine.continuation(model, prompts(small), count)
    with engine.engine(folder, dtype) as llm:
        assert kernels(llm) == {row.kernel}
        watch = bits.Watch(llm)
        found = engine.tokens(llm, wanted.prompt, count)
        calls = watch.end()
        # From the cache of prefixes, and beside others.
        assert engine.tokens(llm, wanted.prompt, count) == found
    layers = {name for name, _, _ in calls}
    assert len(layers) == 4 * SMALL["num_hidden_layers"]
    assert bits.same_bits(model, calls) == len(calls) >= count * len(layers)
    assert found == wanted.tokens, f"the best token led by {min(wanted.leads):.3f}"


@pytest.mark.parametrize("name", ["W4A16 g64", "W8A8 dynamic"])
def test_a_compiled_model_has_no_graph_breaks(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """vLLM traces with fullgraph=True, so that a break would be an error; and the tokens stay."""
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path / "cache"))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    folder = write(WEIGHTS[name], small, tmp_path / "model", "bfloat16")
    prompt, wanted, _ = engine.expected(folder, "bfloat16", prompts(small), COUNT)
    with engine.engine(folder, "bfloat16", enforce_eager=False) as llm:
        found = engine.tokens(llm, prompt, COUNT)
        assert llm.llm_engine.vllm_config.compilation_config.mode != 0
    assert found == wanted
    counters = torch._dynamo.utils.counters
    assert counters["stats"]["unique_graphs"] > 0
    assert not counters["graph_break"]


def test_last_leaves_to_vllm_what_vllm_runs(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(plugin.VARIABLE, "last")
    from vllm.model_executor.kernels import linear
    from vllm.platforms import PlatformEnum

    kernel = sys.modules["mixed_gemm.integrations.vllm.weight_only"].MixedGemmLinearKernel
    lists = linear._POSSIBLE_KERNELS[PlatformEnum.CPU]
    monkeypatch.setitem(
        linear._POSSIBLE_KERNELS, PlatformEnum.CPU, [*(x for x in lists if x is not kernel), kernel]
    )
    logging.getLogger("vllm").propagate = True
    for name, dtype, ours in (
        ("W4A16 g64", "bfloat16", False),
        ("W8A16 g64", "bfloat16", True),
        ("W8A8 dynamic", "bfloat16", False),
        ("W8A8 dynamic", "float16", True),
    ):
        folder = write(WEIGHTS[name], small, tmp_path / f"{name}{dtype}")
        with engine.engine(folder, dtype) as llm:
            assert any("MixedGemm" in x for x in kernels(llm)) == ours, (name, dtype)
            if ours:
                engine.tokens(llm, [1, 2, 3], 2)
