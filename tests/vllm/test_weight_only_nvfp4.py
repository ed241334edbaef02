"""NVFP4 with activations in their dtype, for which vLLM asks no kernel: on a CPU it refuses them,
and ours run them."""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from vllm import envs

from benchmarks.serving import engine
from benchmarks.serving.gpu import engines
from benchmarks.serving.models import SMALL, drawn, random_folder, write
from benchmarks.serving.rows import Row
from mixed_gemm.integrations import vllm as plugin
from mixed_gemm.integrations.vllm import weight_only_nvfp4

COUNT = 8
OURS = "MixedGemmNvFp4LinearKernel"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("nvfp4")
    row = Row("NVFP4", "compressed-tensors", {"scheme": "nvfp4"})
    return write(row, random_folder(root / "dense", SMALL), root / "model")


@pytest.fixture(autouse=True)
def asked_for_layers(as_installed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_ALLOW_INSECURE_SERIALIZATION", "1")


@pytest.mark.parametrize(
    ("place", "why"),
    [("first", "runs NVFP4 with activations in their dtype"), ("last", "which vLLM refuses"),
     ("auto", "which vLLM refuses")],
)  # fmt: skip
def test_ours_give_the_tokens_of_transformers(
    folder: Path, monkeypatch: pytest.MonkeyPatch, said: Any, place: str, why: str
) -> None:
    monkeypatch.setenv(plugin.VARIABLE, place)
    plugin.register()
    prompt, wanted, lead = engine.expected(folder, "float16", drawn(200, 20), COUNT)
    with engine.engine(folder, "float16") as llm:
        assert engines.kernels(llm)[OURS] == 4 * SMALL["num_hidden_layers"]
        assert engine.tokens(llm, prompt, COUNT) == wanted, f"the best token led by {lead:.3f}"
    assert f"mixed_gemm: {OURS} runs NVFP4" in said.text and why in said.text


def as_modelopt(folder: Path, target: Path) -> Path:
    """Write the same codes and scales as ModelOpt does, whose scale of a weight multiplies."""
    shutil.copytree(folder, target)
    weights = target / "model.safetensors"
    tensors = {}
    for name, x in load_file(weights).items():
        if name.endswith("weight_global_scale"):
            tensors[name.replace("weight_global_scale", "weight_scale_2")] = (1 / x).reshape(())
        else:
            tensors[name.replace("weight_packed", "weight")] = x
    save_file(tensors, weights, {"format": "pt"})
    config = json.loads((target / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "modelopt", "quant_algo": "W4A16_NVFP4", "ignore": ["lm_head"],
        "group_size": 16,
    }  # fmt: skip
    (target / "config.json").write_text(json.dumps(config))
    return target


def test_files_of_modelopt_give_the_same_tokens(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(plugin.VARIABLE, "first")
    plugin.register()
    prompt, wanted, lead = engine.expected(folder, "float16", drawn(200, 20), COUNT)
    with engine.engine(as_modelopt(folder, tmp_path / "modelopt"), "float16") as llm:
        assert engines.kernels(llm)[OURS] == 4 * SMALL["num_hidden_layers"]
        assert engine.tokens(llm, prompt, COUNT) == wanted, f"the best token led by {lead:.3f}"


@pytest.mark.parametrize("what", ["a backend", "disabled"])
def test_a_user_who_asks_for_vllms_own_gets_what_they_say(
    folder: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setenv(plugin.VARIABLE, "first")
    if what == "disabled":
        monkeypatch.setitem(envs.environment_variables, "VLLM_DISABLED_KERNELS", lambda: [OURS])
    plugin.register()
    options: dict[str, Any] = {"linear_backend": "marlin"} if what == "a backend" else {}
    with (
        pytest.raises(ValueError, match=r"nvfp4|NVFP4|Marlin"),
        engine.engine(folder, "float16", **options),
    ):
        pass


def test_off_leaves_vllm_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin.register()
    monkeypatch.setenv(plugin.VARIABLE, "off")
    for user in weight_only_nvfp4.USERS:
        with pytest.raises(ValueError, match="MarlinNvFp4LinearKernel is not supported"):
            importlib.import_module(user).init_nvfp4_linear_kernel(use_a16=True)
