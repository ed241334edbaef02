"""Folders whose table of words is packed while they are read, and heads that are tied to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from support.language_models import logits

import mixed_gemm
from mixed_gemm import Scheme
from mixed_gemm.formats import save_checkpoint
from mixed_gemm.quantization import DenseCheckpoint, Options

transformers = pytest.importorskip("transformers", minversion="5.17", reason="optional: hf extra")

WORDS = "model.embed_tokens"
GROUPED = Scheme.named("w4a16", group_size=32)


@pytest.fixture(autouse=True)
def quiet() -> None:
    transformers.utils.logging.disable_progress_bar()


def dense(is_tied: bool, hidden: int = 96) -> Any:
    torch.manual_seed(5)
    config = transformers.LlamaConfig(
        vocab_size=99, hidden_size=hidden, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=4, tie_word_embeddings=is_tied, pad_token_id=0, dtype=torch.bfloat16,
    )  # fmt: skip
    return transformers.AutoModelForCausalLM.from_config(config).eval()


@pytest.mark.parametrize("rows", ("w8a16", "mxfp4", GROUPED))
@pytest.mark.parametrize("is_tied", (True, False))
def test_a_folder_is_what_quantize_makes_in_memory(
    tmp_path: Path, is_tied: bool, rows: Any
) -> None:
    model = dense(is_tied)
    model.save_pretrained(tmp_path / "dense")
    source = DenseCheckpoint(tmp_path / "dense", GROUPED, embeddings=rows)
    assert source.tables == {WORDS} and WORDS in source.layers and WORDS not in source.linears
    save_checkpoint(source, tmp_path / "out")
    found = mixed_gemm.from_pretrained(tmp_path / "out", dtype=torch.bfloat16)
    assert (found.lm_head.weight is found.model.embed_tokens.weight) == is_tied
    mixed_gemm.quantize_(model, GROUPED, options=Options(embeddings=rows, progress=False))
    assert torch.equal(logits(found), logits(model))


def test_groups_are_made_to_fit_the_rows_and_skip_leaves_them(tmp_path: Path) -> None:
    dense(is_tied=True).save_pretrained(tmp_path / "dense")
    source = DenseCheckpoint(tmp_path / "dense", "w8a16", embeddings="w4a16")
    assert source.refit == {WORDS: 96} and source.schemes[WORDS].group_size == 96
    skip = ("embed_tokens",)
    source = DenseCheckpoint(tmp_path / "dense", "w8a16", embeddings="w4a16", skip=skip)
    assert not source.tables and "skip='embed_tokens'" in source.left[WORDS]
    assert WORDS in DenseCheckpoint(tmp_path / "dense", "w8a16").left
    with pytest.raises(ValueError, match="embeddings must be True, False or a scheme"):
        DenseCheckpoint(tmp_path / "dense", "w8a16", embeddings="w8a8")


@pytest.mark.parametrize("size", (None, [99], {"words": 99}, "99", 98))
def test_a_table_is_known_by_the_size_of_the_vocabulary_alone(tmp_path: Path, size: Any) -> None:
    dense(is_tied=True).save_pretrained(tmp_path / "dense")
    file = tmp_path / "dense" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "vocab_size": size}))
    source = DenseCheckpoint(tmp_path / "dense", "w8a16", embeddings="w8a16")
    assert not source.tables and WORDS in source.left


def test_a_table_that_an_encoder_and_a_decoder_share_stays_dense(tmp_path: Path) -> None:
    config = transformers.T5Config(
        vocab_size=99, d_model=64, d_kv=16, d_ff=64, num_layers=1, num_heads=4,
    )  # fmt: skip
    transformers.T5ForConditionalGeneration(config).save_pretrained(tmp_path / "dense")
    source = DenseCheckpoint(tmp_path / "dense", "w8a16", embeddings="w8a16")
    assert not source.tables and "shared" in source.left


@pytest.mark.parametrize("head", ("w8a16", "w8a8", "nf4", True, GROUPED))
@pytest.mark.parametrize("rows", (None, "w8a16"))
def test_a_head_of_its_own_is_what_quantize_makes_of_it(
    tmp_path: Path, head: Any, rows: Any
) -> None:
    model = dense(is_tied=False, hidden=64)
    model.save_pretrained(tmp_path / "dense")
    source = DenseCheckpoint(tmp_path / "dense", GROUPED, embeddings=rows, heads=head)
    assert "lm_head" in source.linears and source.tables == ({WORDS} if rows else set())
    save_checkpoint(source, tmp_path / "out")
    found = mixed_gemm.from_pretrained(tmp_path / "out", dtype=torch.bfloat16)
    options = Options(embeddings=rows or False, heads=head, progress=False)
    mixed_gemm.quantize_(model, GROUPED, options=options)
    assert model.lm_head.scheme == source.schemes["lm_head"]
    assert torch.equal(logits(found), logits(model))


def test_heads_that_are_not_there_are_refused(tmp_path: Path) -> None:
    dense(is_tied=True).save_pretrained(tmp_path / "dense")
    with pytest.raises(ValueError, match=r"heads must be False .* tied to an embedding is packed"):
        DenseCheckpoint(tmp_path / "dense", "w8a16", heads="w8a16")
    dense(is_tied=False).save_pretrained(tmp_path / "own")
    with pytest.raises(ValueError, match=r"lm_head: matches skip='lm_head'"):
        DenseCheckpoint(tmp_path / "own", "w8a16", heads=True, skip=("lm_head",))
    static = Scheme.named("w8a8", activations="static")
    with pytest.raises(ValueError, match="activations must be dynamic"):
        DenseCheckpoint(tmp_path / "own", "w8a16", heads=static)
    with pytest.raises(ValueError, match="heads must be a scheme of 4 bits with codes of 3"):
        DenseCheckpoint(tmp_path / "own", GROUPED, method="rtn", bits=3, heads="w8a16")
