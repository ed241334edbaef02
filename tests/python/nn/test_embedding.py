"""Embeddings in int8: rows to the bit, quantize_(embeddings=True), files, what others say."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from support import tiny_llama
from torch import nn

import mixed_gemm
from mixed_gemm import Embedding
from mixed_gemm.formats import open_checkpoint, save_checkpoint
from mixed_gemm.weights import RowsWeight

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
V, D = 61, 48


def dense(dtype: torch.dtype = torch.float32, **options: Any) -> nn.Embedding:
    torch.manual_seed(1)
    return nn.Embedding(V, D, **options).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (0, 4)])
def test_rows_are_those_of_the_dense_weight_to_the_bit(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    source = dense(dtype, padding_idx=3)
    made, ids = Embedding.from_float(source), torch.randint(0, V, shape)
    found = made(ids)
    assert torch.equal(found, nn.functional.embedding(ids, made.dequantize()))
    assert torch.equal(found, nn.functional.embedding(ids, made.weight))  # by dispatch
    assert found.shape == (*shape, D) and found.dtype == dtype and made.padding_idx == 3
    whole = source.weight.float()
    error = (made.dequantize(torch.float32) - whole).abs().amax(1)
    assert bool((error <= whole.abs().amax(1) * (0.51 / 127 + 2.0**-8)).all())
    assert made.weight.stored_bytes == V * (D + 4)


def test_wrong_indices_and_weights_are_refused() -> None:
    made = Embedding.from_float(dense())
    with pytest.raises(IndexError):
        made(torch.tensor([V]))
    with pytest.raises(ValueError, match="max_norm"):
        Embedding.from_float(nn.Embedding(4, 4, max_norm=1.0))
    with pytest.raises(RuntimeError, match="do not train"):
        made.weight.requires_grad_()
    with pytest.raises(TypeError, match="weight must be int8"):
        RowsWeight.from_quantized(torch.zeros(4, 4), torch.ones(4))
    with pytest.raises(ValueError, match="weight_scale must be"):
        RowsWeight.from_quantized(torch.zeros(4, 4, dtype=torch.int8), torch.ones(3))


def test_slices_state_and_copies() -> None:
    made, ids = Embedding.from_float(dense()), torch.arange(V)
    weight = made.weight
    parts = [weight.cut(0, 0, 20), weight.cut(0, 20, V)]
    assert torch.equal(RowsWeight.join(parts).dequantize(), weight.dequantize())
    assert torch.equal(weight.cut(1, 8, 24).dequantize(), weight.dequantize()[:, 8:24])
    fresh = Embedding(V, D, bits=8)
    assert not fresh(ids).any()
    fresh.load_state_dict(made.state_dict())
    for twin in (fresh, copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert torch.equal(twin(ids), made(ids))
    with pytest.raises(RuntimeError, match="another kind"):
        Embedding(V, D + 1, bits=8).load_state_dict(made.state_dict())
    assert type(made.to_float()) is nn.Embedding
    compiled = torch.compile(made, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(ids), made(ids))


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(V, D), nn.Embedding(16, D)
        self.tied, self.head = nn.Embedding(V, D), nn.Linear(D, V, bias=False)
        self.small = nn.Embedding(4, D, max_norm=1.0)
        self.head.weight = self.tied.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        at = torch.arange(ids.shape[-1])
        out: torch.Tensor = self.head(self.words(ids) + self.places(at) + self.tied(ids))
        return out


def test_quantize_takes_them_when_asked() -> None:
    torch.manual_seed(2)
    model, ids = Words(), torch.randint(0, V, (2, 9))
    exact = model(ids)
    off = mixed_gemm.quantize_(copy.deepcopy(model), "w8a16", progress=False)
    assert off.quantized == () and "embeddings=True" in off.skipped["words"]
    report = mixed_gemm.quantize_(
        model, "w8a8", embeddings=True, skip="places", progress=False
    )  # of a scheme that rounds activations, too
    assert report.quantized == ("words",) and type(model.words) is Embedding
    assert type(model.places) is nn.Embedding and "skip='places'" in report.skipped["places"]
    assert "tied" in report.skipped["tied"] and "max_norm" in report.skipped["small"]
    assert "words" not in report.skipped and 0 < report.layers["words"].weight_error < 0.02
    assert 0 < (model(ids) - exact).norm() / exact.norm() < 0.01
    again = mixed_gemm.quantize_(model, embeddings=True, skip="places", progress=False)
    assert again.skipped["words"] == "quantized already"


def test_files_of_ours(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Embedding(V, D), nn.Linear(D, 32))
    mixed_gemm.quantize_(model, "w8a16", embeddings=True, progress=False)
    save_checkpoint(model, tmp_path / "first")
    save_checkpoint(open_checkpoint(tmp_path / "first"), tmp_path / "second")
    for folder in ("first", "second"):
        found, ids = open_checkpoint(tmp_path / folder), torch.arange(V)
        weight = found.layer("0")
        assert weight.is_embedding and not found.layer("1").is_embedding
        again = weight.to_module(torch.float32)
        assert type(again) is Embedding and torch.equal(again(ids), model[0](ids))
        assert "embedding" in (tmp_path / folder / "README.md").read_text()
        with pytest.raises(ValueError, match="is an embedding"):
            weight.to_linear()


STOCK = """
import sys, transformers
transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1])
"""


def test_transformers_reads_them_with_mixed_gemm_and_refuses_them_without(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="optional: hf extra")
    pytest.importorskip("compressed_tensors", reason="optional: hf extra")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        tiny_llama.write_dense(tmp_path / "dense"), dtype=torch.float32
    )
    report = mixed_gemm.quantize_(model, "w8a16", embeddings=True, progress=False)
    assert "model.embed_tokens" in report.quantized
    model.save_pretrained(tmp_path / "saved")
    tokens = torch.tensor([[1, 5, 7]])
    for load in (mixed_gemm.from_pretrained, transformers.AutoModelForCausalLM.from_pretrained):
        again = load(tmp_path / "saved", dtype=torch.float32)
        assert type(again.get_input_embeddings()) is Embedding
        assert again.get_input_embeddings().padding_idx == model.get_input_embeddings().padding_idx
        assert torch.equal(again(tokens).logits, model(tokens).logits)
    done = subprocess.run(
        [sys.executable, "-c", STOCK, tmp_path / "saved"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode != 0 and "mixed-gemm-packed" in done.stderr


def test_adapters_go_on_top(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="optional: hf extra")
    torch.manual_seed(3)
    model = nn.Sequential(nn.Embedding(V, D), nn.Linear(D, 32))
    mixed_gemm.quantize_(model, "w8a16", embeddings=True, progress=False)
    ids = torch.randint(0, V, (2, 5))
    config = peft.LoraConfig(r=4, target_modules=["0", "1"], init_lora_weights=False)
    tuned = peft.get_peft_model(copy.deepcopy(model), config)
    loss = tuned(ids).square().mean()
    loss.backward()
    found = tuned.base_model.model[0]
    assert all(p.grad is not None for n, p in tuned.named_parameters() if "lora_" in n)
    want = (found.base_layer.dequantize() + found.get_delta_weight("default")).detach()
    merged = tuned.merge_and_unload()
    assert type(merged[0]) is Embedding
    assert (merged[0].dequantize() - want).norm() / want.norm() < 0.01
