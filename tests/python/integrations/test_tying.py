"""Heads and embeddings that files have quantized, in models whose configuration ties them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support import tiny_llama
from support.checkpoints import INTEGERS
from support.generation import assert_equals_dense, dense_model, logits, truth

import mixed_gemm
from mixed_gemm.formats import CheckpointError, open_checkpoint, save_checkpoint

transformers = pytest.importorskip("transformers", minversion="5.17", reason="optional: hf extra")

Q_PROJ = f"{tiny_llama.BLOCK}.self_attn.q_proj"  # of the shape that the head has


@pytest.fixture(autouse=True)
def quiet() -> None:
    transformers.utils.logging.disable_progress_bar()


def changed(folder: Path, change: Any, **config: Any) -> Path:
    """A folder of the fixtures whose tensors and config went through a function."""
    file = folder / "model.safetensors"
    tensors = {name: x.clone() for name, x in load_file(file).items()}
    whole = json.loads((folder / "config.json").read_text())
    change(tensors, whole["quantization_config"])
    file.unlink()
    save_file({k: v.contiguous() for k, v in tensors.items()}, file, {"format": "pt"})
    (folder / "config.json").write_text(json.dumps({**whole, **config}))
    return folder


def quantize_head(tensors: dict[str, torch.Tensor], config: dict[str, Any]) -> None:
    """Give the head the tensors of a quantized layer of its shape."""
    del tensors["lm_head.weight"]
    for name in [x for x in tensors if x.startswith(f"{Q_PROJ}.") and not x.endswith(".bias")]:
        tensors[name.replace(Q_PROJ, "lm_head")] = tensors[name].clone()
    if "ignore" in config:
        config["ignore"] = [x for x in config["ignore"] if x != "lm_head"]
    if config["quant_method"] == "gptq":
        config["lm_head"] = True


@pytest.mark.parametrize("folder", INTEGERS)
def test_a_quantized_head_is_that_of_the_file_whatever_the_flag_says(
    repository: Path, tmp_path: Path, folder: str
) -> None:
    path = shutil.copytree(repository / "tests" / "data" / folder, tmp_path / "tied")
    changed(path, quantize_head, tie_word_embeddings=True)
    model = mixed_gemm.from_pretrained(path, dtype=torch.float32, weight_only=True)
    assert isinstance(model.lm_head, mixed_gemm.Linear)
    dense = truth(folder)
    dense.lm_head.weight.data.copy_(dense.get_submodule(Q_PROJ).weight)
    assert_equals_dense(model, dense)
    found = logits(model)
    embedding = model.model.embed_tokens.weight.clone()
    model.tie_weights()  # as resizing embeddings and others do
    assert torch.equal(logits(model), found)
    assert torch.equal(model.model.embed_tokens.weight, embedding)


@pytest.mark.parametrize("folder", ["awq_gemm", "gptq_v2_4bit_act_order", "ct_pack_4bit"])
def test_what_is_saved_of_it_is_not_tied_any_more(
    repository: Path, tmp_path: Path, folder: str
) -> None:
    path = shutil.copytree(repository / "tests" / "data" / folder, tmp_path / "tied")
    changed(path, quantize_head, tie_word_embeddings=True)
    model = mixed_gemm.from_pretrained(path, dtype=torch.float32)
    model.save_pretrained(tmp_path / "pretrained")
    save_checkpoint(model, tmp_path / "model")
    save_checkpoint(open_checkpoint(path), tmp_path / "converted")
    for name in ("pretrained", "model", "converted"):
        config = json.loads((tmp_path / name / "config.json").read_text())
        assert config["tie_word_embeddings"] is False, name
        again = mixed_gemm.from_pretrained(tmp_path / name, dtype=torch.float32)
        assert torch.equal(logits(again), logits(model)), name


def test_a_dense_head_of_its_own_is_that_of_the_file(repository: Path, tmp_path: Path) -> None:
    path = shutil.copytree(repository / "tests" / "data" / "awq_gemm", tmp_path / "tied")
    changed(path, lambda tensors, config: None, tie_word_embeddings=True)
    model = mixed_gemm.from_pretrained(path, dtype=torch.float32)
    untied = mixed_gemm.from_pretrained(repository / "tests/data/awq_gemm", dtype=torch.float32)
    assert torch.equal(logits(model), logits(untied))


def test_a_head_that_no_file_has_is_the_embedding(repository: Path, tmp_path: Path) -> None:
    path = shutil.copytree(repository / "tests" / "data" / "awq_gemm", tmp_path / "tied")
    changed(path, lambda x, config: x.pop("lm_head.weight"), tie_word_embeddings=True)
    model = mixed_gemm.from_pretrained(path, dtype=torch.float32)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    model.save_pretrained(tmp_path / "saved")
    assert json.loads((tmp_path / "saved" / "config.json").read_text())["tie_word_embeddings"]


def rows_and_head(tmp_path: Path, drop_head: bool, quantize_too: bool = False) -> tuple[Any, Path]:
    """A model with a quantized embedding, and its folder with the flag."""
    weights = {
        name: (tiny_llama.scatter(name + "rows", n, k) / 2**19 - 1).float() * 0.2
        for name, (n, k) in tiny_llama.LINEARS.items()
    }
    model = dense_model(weights, biases=False)
    skip: Any = () if quantize_too else ("lm_head",)
    mixed_gemm.quantize_(model, group_size=32, embeddings=True, skip=skip, progress=False)
    assert isinstance(model.model.embed_tokens, mixed_gemm.Embedding)
    save_checkpoint(model, tmp_path / "rows")

    def change(tensors: dict[str, torch.Tensor], config: Any) -> None:
        if drop_head:
            tensors.pop("lm_head.weight")

    return model, changed(tmp_path / "rows", change, tie_word_embeddings=True)


@pytest.mark.parametrize("quantize_too", [False, True])
def test_beside_a_quantized_embedding_the_head_is_that_of_the_file(
    tmp_path: Path, quantize_too: bool
) -> None:
    model, path = rows_and_head(tmp_path, drop_head=False, quantize_too=quantize_too)
    again = mixed_gemm.from_pretrained(path, dtype=torch.float32)
    assert isinstance(again.lm_head, mixed_gemm.Linear) is quantize_too
    assert torch.equal(logits(again), logits(model))


def test_a_head_that_no_file_has_multiplies_by_the_quantized_embedding(tmp_path: Path) -> None:
    _, path = rows_and_head(tmp_path, drop_head=True)
    for load in (mixed_gemm.from_pretrained, transformers.AutoModelForCausalLM.from_pretrained):
        model = load(path, dtype=torch.float32)
        table = model.model.embed_tokens
        assert model.lm_head.weight is table.weight
        rows = open_checkpoint(path).layer("model.embed_tokens").dequantize()
        assert torch.equal(model.lm_head.dequantize(), rows)


def test_another_module_that_no_file_has_is_refused(tmp_path: Path) -> None:
    """Such as a head with a bias, which is no tensor of the embedding."""
    _, path = rows_and_head(tmp_path, drop_head=True)

    class Biased(transformers.LlamaForCausalLM):  # type: ignore[misc]
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size)
            self.post_init()

    with pytest.raises(CheckpointError, match=r"lm_head\.weight is tied to .*, which is quant"):
        mixed_gemm.from_pretrained(path, model_class=Biased, dtype=torch.float32)
