"""Experts of gpt-oss in MXFP4 are written as OpenAI publishes them, bit for bit, so that stock
transformers reads them; with anything else quantized they are written by themselves."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from integrations.test_experts import IDS, MODELS, SIZES, gpt_oss
from safetensors.torch import load_file
from torch import Tensor

import mixed_gemm
from mixed_gemm.formats import open_checkpoint
from mixed_gemm.formats.ct_encode import Groups
from mixed_gemm.formats.gpt_oss_encode import Stacks

CONFIG = transformers.GptOssConfig(**{**SIZES, "num_hidden_layers": 2}, num_local_experts=3)
EXPERTS = "model.layers.{}.mlp.experts.{}"
# Stock transformers, in a process that knows nothing of this library.
STOCK = """
import sys, torch, transformers
for folder in sys.argv[1:]:
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, quantization_config=transformers.Mxfp4Config(dequantize=True)
    )
    assert type(model.model.layers[0].mlp.experts).__name__ == "GptOssExperts"
    torch.save(model(torch.arange(7).view(1, 7)).logits, folder + "/answer.pt")
assert "mixed_gemm" not in sys.modules
"""


def not_experts(name: str, module: Any) -> bool:
    return ".experts." not in name


def quantized(scheme: str = "mxfp4", skip: Any = not_experts) -> Any:
    """Two layers, whose biases are no zeros."""
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(copy.deepcopy(CONFIG)).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("_proj_bias"):
            torch.nn.init.normal_(parameter)
    sizes = {"group_size": 32} if scheme == "w4a16" else {}
    mixed_gemm.quantize_(model, scheme, skip=skip, **sizes)
    return model


def config_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return found["quantization_config"]


def tensors_in(folder: Path) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for file in folder.glob("*.safetensors"):
        found |= load_file(file)
    return found


def test_what_was_read_is_written_with_the_same_bytes(tmp_path: Path) -> None:
    folder, _ = gpt_oss(tmp_path / "m")
    model = mixed_gemm.from_pretrained(folder, dtype=torch.float32)
    model.save_pretrained(tmp_path / "saved")
    mixed_gemm.save_checkpoint(model, tmp_path / "of the model")
    mixed_gemm.save_checkpoint(open_checkpoint(folder), tmp_path / "of the file")
    wanted = tensors_in(folder)
    assert sum(name.endswith(("_blocks", "_scales")) for name in wanted) == 4
    for name in ("saved", "of the model", "of the file"):
        found = tensors_in(tmp_path / name)
        assert found.keys() == wanted.keys()
        for key, tensor in wanted.items():
            assert found[key].dtype == tensor.dtype and torch.equal(found[key], tensor), key
        said = config_of(tmp_path / name)
        assert said["quant_method"] == "mxfp4" and "lm_head" in said["modules_to_not_convert"]
        assert not (tmp_path / name / "README.md").exists()


def test_stock_transformers_reads_what_is_written(tmp_path: Path) -> None:
    """Stock transformers dequantizes on a CPU; this library reads the same folder bit for bit."""
    folder, _ = gpt_oss(tmp_path / "m")
    models = {
        "quantized": quantized(),
        "read": mixed_gemm.from_pretrained(folder, dtype=torch.float32),
    }
    for name, model in models.items():
        model.save_pretrained(tmp_path / name)
    mixed_gemm.save_checkpoint(models["quantized"], tmp_path / "shards", max_shard_bytes=10_000)
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 2
    models["shards"] = models["quantized"]
    command = [sys.executable, "-c", STOCK, *(str(tmp_path / name) for name in models)]
    subprocess.run(command, check=True, capture_output=True)
    for name, model in models.items():
        wanted = model(IDS).logits
        assert torch.allclose(torch.load(tmp_path / name / "answer.pt"), wanted, atol=1e-5), name
        again = mixed_gemm.from_pretrained(tmp_path / name, dtype=torch.float32)
        assert torch.equal(again(IDS).logits, wanted)
        # Once this library is imported, transformers knows the folder for one of ours.
        auto = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / name)
        assert isinstance(auto.model.layers[0].mlp.experts, mixed_gemm.nn.experts.Experts)
        assert torch.equal(auto(IDS).logits, wanted)


def test_files_that_have_experts_by_themselves_become_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As this library wrote them before."""
    model = quantized()
    with monkeypatch.context() as patch:
        patch.setattr("mixed_gemm.formats.written.is_gpt_oss", lambda *given: False)
        mixed_gemm.save_checkpoint(model, tmp_path / "before")
    assert config_of(tmp_path / "before")["quant_method"] == "compressed-tensors"
    mixed_gemm.save_checkpoint(open_checkpoint(tmp_path / "before"), tmp_path / "now")
    mixed_gemm.save_checkpoint(model, tmp_path / "direct")
    now, direct = tensors_in(tmp_path / "now"), tensors_in(tmp_path / "direct")
    assert f"{EXPERTS.format(1, 'down_proj_blocks')}" in now and now.keys() == direct.keys()
    assert all(torch.equal(now[key], direct[key]) for key in now)
    recipe = config_of(tmp_path / "now")["mixed_gemm"]["recipe"]
    assert recipe == config_of(tmp_path / "direct")["mixed_gemm"]["recipe"]


@pytest.mark.parametrize(
    ("scheme", "skip"),
    [
        ("w4a16", not_experts),
        ("mxfp4", ["lm_head"]),
        ("mxfp4", lambda name, x: ".experts." not in name or name.endswith("2.down_proj")),
        ("mxfp4", lambda name, x: ".experts." not in name or "layers.1" in name),
    ],
    ids=["integers", "attention, too", "a dense linear", "a dense layer"],
)
def test_others_are_written_by_themselves(tmp_path: Path, scheme: str, skip: Any) -> None:
    model = quantized(scheme, skip)
    model.save_pretrained(tmp_path / "a")
    mixed_gemm.save_checkpoint(model, tmp_path / "b")
    for folder in (tmp_path / "a", tmp_path / "b"):
        assert config_of(folder)["format"] == "mixed-gemm-packed"
        assert "in one tensor" in (folder / "README.md").read_text()
        assert not any(name.endswith("_blocks") for name in tensors_in(folder))
        again = mixed_gemm.from_pretrained(folder, dtype=torch.float32)
        assert torch.equal(again(IDS).logits, model(IDS).logits)


def test_biases_of_several_dtypes_are_refused(tmp_path: Path) -> None:
    """In one tensor some of them would be rounded without a word."""
    model = quantized()
    up = model.model.layers[1].mlp.experts.expert(2).up_proj
    up.bias = torch.nn.Parameter(up.bias.detach().to(torch.bfloat16), requires_grad=False)
    for save in (model.save_pretrained, lambda path: mixed_gemm.save_checkpoint(model, path)):
        with pytest.raises(ValueError, match=r"2\.up_proj: its bias is torch.bfloat16, and that"):
            save(tmp_path / "m")
    model.to(torch.float32).save_pretrained(tmp_path / "m")
    assert config_of(tmp_path / "m")["quant_method"] == "mxfp4"


def test_files_of_others_stay_with_transformers(tmp_path: Path) -> None:
    """Also where this library is imported."""
    folder, _ = gpt_oss(tmp_path / "m")
    asked = transformers.Mxfp4Config(dequantize=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, quantization_config=asked)
    assert type(model.model.layers[0].mlp.experts).__name__ == "GptOssExperts"


def test_another_model_of_such_weights_is_not_gpt_oss(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(copy.deepcopy(MODELS["Qwen3-MoE"]))
    mixed_gemm.quantize_(model, "mxfp4", skip=not_experts)
    model.save_pretrained(tmp_path)
    assert config_of(tmp_path)["format"] == "mxfp4-pack-quantized"


def test_tensors_of_one_layer_are_held_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one expert beside them."""
    held: list[set[str]] = []
    plain = Stacks.encode

    def encode(self: Stacks, weight: Any) -> Any:
        found = list(plain(self, weight))
        held.append({name.rpartition(".experts.")[0] for name in (*self._held, *dict(found))})
        return iter(found)

    monkeypatch.setattr(Stacks, "encode", encode)
    mixed_gemm.save_checkpoint(quantized(), tmp_path / "of the model")
    mixed_gemm.save_checkpoint(open_checkpoint(tmp_path / "of the model"), tmp_path / "of files")
    assert len(held) == 2 * 2 * 3 * 3 and all(len(owners) == 1 for owners in held)
    assert Groups.joins_experts is False
