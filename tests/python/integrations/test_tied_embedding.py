"""One quantized tensor for the embedding and the output head of a language model: files, loading,
and what transformers does with such a model.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from support.language_models import IDS, is_one, logits

import mixed_gemm
from mixed_gemm.formats import open_checkpoint, save_checkpoint
from mixed_gemm.quantization import Options

transformers = pytest.importorskip("transformers", minversion="5.17", reason="optional: hf extra")

SIZES = {
    "vocab_size": 99, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1,
    "num_attention_heads": 4, "tie_word_embeddings": True, "pad_token_id": 0,
}  # fmt: skip


@pytest.fixture(autouse=True)
def quiet() -> None:
    transformers.utils.logging.disable_progress_bar()


def quantized(embeddings: Any = "w8a16", dtype: torch.dtype = torch.float32) -> Any:
    torch.manual_seed(4)
    config = transformers.LlamaConfig(**SIZES, dtype=dtype)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    scheme = mixed_gemm.Scheme.named("w4a16", group_size=32)
    mixed_gemm.quantize_(model, scheme, options=Options(embeddings=embeddings, progress=False))
    return model


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
@pytest.mark.parametrize("scheme", ("w8a16", "int4", "mxfp4", "nvfp4", "nf4"))
def test_files_have_the_tensor_once_and_loading_ties_it(
    tmp_path: Path, scheme: str, dtype: torch.dtype
) -> None:
    asked = mixed_gemm.Scheme.named("w4a16", group_size=32) if scheme == "int4" else scheme
    model = quantized(asked, dtype)
    assert is_one(model) and type(model.lm_head) is mixed_gemm.Linear
    model.save_pretrained(tmp_path / "a")
    save_checkpoint(model, tmp_path / "b")
    save_checkpoint(open_checkpoint(tmp_path / "a"), tmp_path / "c")
    for folder in (tmp_path / x for x in "abc"):
        with safe_open(folder / "model.safetensors", "pt") as file:
            names = list(file.keys())
        assert not [name for name in names if name.startswith("lm_head")]
        assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"] is True
        assert "the rows of an embedding" in (folder / "README.md").read_text()
        for load in (mixed_gemm.from_pretrained, transformers.AutoModelForCausalLM.from_pretrained):
            found, info = load(folder, dtype=dtype, output_loading_info=True)
            assert is_one(found) and torch.equal(logits(found), logits(model))
            assert not info["missing_keys"] and not info["unexpected_keys"]
            found.tie_weights()
            assert is_one(found) and torch.equal(logits(found), logits(model))


@pytest.mark.parametrize(
    "places",
    (
        "cpu",
        "auto",
        {"model": "cpu", "lm_head": "cpu"},
        {
            "model.embed_tokens": "disk", "lm_head": "disk", "model.layers": "cpu",
            "model.norm": "cpu", "model.rotary_emb": "cpu",
        },
    ),
)  # fmt: skip
def test_places_of_accelerate(tmp_path: Path, places: Any) -> None:
    model = quantized()
    model.save_pretrained(tmp_path / "m")
    found = mixed_gemm.from_pretrained(
        tmp_path / "m", dtype=torch.float32, device_map=places, offload_folder=tmp_path / "off"
    )
    assert torch.equal(logits(found), logits(model))


def test_copies_casts_and_other_sizes_stay_tied() -> None:
    model = quantized()
    twin = copy.deepcopy(model)
    assert is_one(twin) and torch.equal(logits(twin), logits(model))
    assert is_one(twin.to(torch.bfloat16)) and twin.lm_head.weight.dtype == torch.bfloat16
    before = logits(model)
    model.resize_token_embeddings(110)
    assert is_one(model) and model.lm_head.out_features == 110
    assert torch.equal(logits(model)[..., :99], before)


def test_an_adapter_beside_it_trains_and_merges() -> None:
    peft = pytest.importorskip("peft", reason="optional: hf extra")
    model = quantized()
    before = logits(model)
    config = peft.LoraConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM")
    adapted = peft.get_peft_model(model, config)
    adapted(IDS, labels=IDS).loss.backward()
    merged = adapted.merge_and_unload()
    assert is_one(merged) and torch.equal(logits(merged), before)
