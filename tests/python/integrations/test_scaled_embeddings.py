"""Embeddings of a class of their model, such as Gemma's, which scales rows: packed as others are,
alone and with the output head that is tied to them."""

from __future__ import annotations

import copy
import importlib
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from support.language_models import IDS, is_one, logits
from torch import nn

import mixed_gemm
from mixed_gemm import Embedding, Scheme
from mixed_gemm.formats import CheckpointError, save_checkpoint
from mixed_gemm.quantization import DenseCheckpoint, Options
from mixed_gemm.quantization.plain_rows import why_not_rows

transformers = pytest.importorskip("transformers", minversion="5.17", reason="optional: hf extra")

INT4 = Scheme.named("w4a16", group_size=32)
SIZES = {
    "vocab_size": 99, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "pad_token_id": 0,
}  # fmt: skip


@pytest.fixture(autouse=True)
def quiet() -> None:
    transformers.utils.logging.disable_progress_bar()


def gemma(dtype: torch.dtype = torch.float32, is_tied: bool = True) -> Any:
    torch.manual_seed(4)
    config = transformers.Gemma3TextConfig(**SIZES, tie_word_embeddings=is_tied)
    return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


def quantized(model: Any, embeddings: Any = INT4, **words: Any) -> Any:
    options = Options(embeddings=embeddings, progress=False, **words)
    return mixed_gemm.quantize_(model, INT4, options=options)


def made(family: str, name: str, *sizes: Any) -> nn.Embedding:
    module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    found: nn.Embedding = getattr(module, name)(*sizes)
    return found


SCALED = (
    ("gemma3", "Gemma3TextScaledWordEmbedding", 40, 64, 0, 64**0.5),
    ("gemma3n", "Gemma3nTextScaledWordEmbedding", 40, 64, 0, 0.3),
    ("m2m_100", "M2M100ScaledWordEmbedding", 40, 64, 1, 64**0.5),
    ("bart", "BartScaledWordEmbedding", 40, 64, 1, 0.3),
    ("xglm", "XGLMScaledWordEmbedding", 40, 64, 1, 1.7),
)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float16, torch.bfloat16))
@pytest.mark.parametrize("sizes", SCALED, ids=lambda x: x[1])
def test_rows_are_scaled_as_the_class_does_to_the_bit(sizes: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    dense = made(*sizes).to(dtype)
    assert why_not_rows(dense) == ""
    for scheme in (None, "w8a16", INT4, Scheme.named("w4a16_asym", group_size=32), "mxfp4"):
        module = Embedding.from_float(dense, scheme)
        assert isinstance(module, type(dense)) and isinstance(module, Embedding)
        rows = module.to_float()
        assert type(rows) is type(dense) and torch.equal(rows.weight, module.dequantize())
        for ids in (IDS % 40, torch.tensor(3), IDS[:1].int() % 40):
            assert torch.equal(module(ids), rows(ids))
        plain = nn.functional.embedding(IDS % 40, rows.weight)
        assert not torch.equal(module(IDS % 40), plain)  # the factor is there


REFUSED = (
    (("opt", "OPTLearnedPositionalEmbedding", 40, 64), "does not take indices alone"),
    (("idefics", "IdeficsDecoupledEmbedding", 40, 2, 64), "more than rows and numbers: additional"),
    (("ovis2", "Ovis2VisualEmbeddingTable", 40, 64), "computes otherwise than by rows"),
)


@pytest.mark.parametrize(("sizes", "why"), REFUSED, ids=lambda x: x[1] if len(x) < 6 else "")
def test_classes_that_do_more_stay_dense_and_are_named(sizes: Any, why: str) -> None:
    dense = made(*sizes)
    model = nn.Sequential(dense)
    report = mixed_gemm.quantize_(
        nn.ModuleList([*model, nn.Linear(64, 64)]), "w8a16", embeddings=True, progress=False
    )
    assert why in report.skipped["0"] and type(dense).__name__ in report.skipped["0"]


def test_a_class_with_a_hidden_number_is_not_taken_for_one_of_rows() -> None:
    class Hidden(nn.Embedding):
        def __init__(self) -> None:
            super().__init__(40, 64)
            self._scale = 3.0

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return super().forward(ids) * self._scale

    class Drawn(nn.Embedding):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return super().forward(ids) + torch.randn(())

    for kind in (Hidden(), Drawn(40, 64)):
        assert "computes otherwise than by rows" in why_not_rows(kind)


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
@pytest.mark.parametrize("scheme", ("w8a16", INT4, "mxfp4"), ids=str)
def test_gemma_has_one_tensor_for_both_in_memory_and_in_files(
    tmp_path: Path, scheme: Any, dtype: torch.dtype
) -> None:
    model = gemma(dtype)
    model.save_pretrained(tmp_path / "dense")
    like = gemma(dtype)
    report = quantized(model, scheme)
    assert not report.skipped and is_one(model)
    like.model.embed_tokens.weight.data = model.model.embed_tokens.dequantize()
    assert torch.equal(like.model.embed_tokens(IDS), model.model.embed_tokens(IDS))
    model.save_pretrained(tmp_path / "a")
    loads = [
        load(tmp_path / "a", dtype=dtype, output_loading_info=True)
        for load in (mixed_gemm.from_pretrained, transformers.AutoModelForCausalLM.from_pretrained)
    ]
    config = mixed_gemm.MixedGemmConfig("w4a16", group_size=32, embeddings=scheme)
    loads.append(
        transformers.AutoModelForCausalLM.from_pretrained(
            tmp_path / "dense", dtype=dtype, quantization_config=config, output_loading_info=True
        )
    )
    for found, info in loads:
        assert is_one(found) and torch.equal(logits(found), logits(model))
        assert not info["missing_keys"] and not info["unexpected_keys"]
        assert type(found.model.embed_tokens) is type(model.model.embed_tokens)


def test_gemma_waits_on_disk_and_is_saved_from_there(tmp_path: Path) -> None:
    model = gemma()
    quantized(model)
    model.save_pretrained(tmp_path / "a")
    places = {
        "model.embed_tokens": "disk", "lm_head": "disk", "model.layers": "cpu",
        "model.norm": "cpu", "model.rotary_emb": "cpu",
    }  # fmt: skip
    found = mixed_gemm.from_pretrained(
        tmp_path / "a", dtype=torch.float32, device_map=places, offload_folder=tmp_path / "off"
    )
    assert torch.equal(logits(found), logits(model))
    found.save_pretrained(tmp_path / "b")
    again = mixed_gemm.from_pretrained(tmp_path / "b", dtype=torch.float32)
    assert torch.equal(logits(again), logits(model))


def test_copies_pickles_casts_sizes_and_graphs() -> None:
    model = gemma()
    quantized(model)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert is_one(other) and torch.equal(logits(other), logits(model))
        other.resize_token_embeddings(120)
        assert torch.equal(logits(other)[..., :99], logits(model))
    half = copy.deepcopy(model).to(torch.bfloat16)
    assert half.model.embed_tokens(IDS).dtype == torch.bfloat16
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True)
    torch.testing.assert_close(logits(compiled), logits(model))
    torch._dynamo.reset()
    module = copy.deepcopy(model.model.embed_tokens)
    program = torch.export.export(module, (IDS,), strict=False)
    assert torch.equal(program.module()(IDS), module(IDS))


def test_an_adapter_on_gemmas_embedding_begins_with_what_there_is() -> None:
    peft = pytest.importorskip("peft", reason="optional: hf extra")
    model = gemma()
    quantized(model)
    wanted = logits(model)
    adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["embed_tokens"]))
    torch.testing.assert_close(logits(adapted), wanted)


def test_the_average_of_bits_counts_gemmas_tensor_once() -> None:
    model = gemma()
    report = quantized(model, average_bits=8)
    assert report.average.bits["model.embed_tokens"] == 8
    assert report.average.tied == {"lm_head": "model.embed_tokens"}
    assert is_one(model) and model.lm_head.weight.scheme.bits == 8


@pytest.mark.parametrize("is_tied", (True, False))
def test_a_folder_of_gemma_keeps_the_factor(tmp_path: Path, is_tied: bool) -> None:
    model = gemma(is_tied=is_tied)
    model.save_pretrained(tmp_path / "dense")
    source = DenseCheckpoint(tmp_path / "dense", INT4, embeddings="w8a16")
    save_checkpoint(source, tmp_path / "out")
    found = mixed_gemm.from_pretrained(tmp_path / "out", dtype=torch.float32)
    quantized(model, "w8a16")
    assert is_one(found) == is_tied and torch.equal(logits(found), logits(model))


def test_a_table_in_a_file_whose_class_does_more_is_refused(tmp_path: Path) -> None:
    """From names alone nobody can tell that a norm follows the rows."""
    model = gemma()
    model.save_pretrained(tmp_path / "dense")
    save_checkpoint(DenseCheckpoint(tmp_path / "dense", INT4, embeddings="w8a16"), tmp_path / "out")

    class Normed(type(model.model.embed_tokens)):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.norm = nn.LayerNorm(64)

    place = importlib.import_module("transformers.models.gemma3.modeling_gemma3")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, "Gemma3TextScaledWordEmbedding", Normed)
        with pytest.raises(
            CheckpointError, match="a Normed, which holds more than rows and numbers"
        ):
            mixed_gemm.from_pretrained(tmp_path / "out", dtype=torch.float32)
