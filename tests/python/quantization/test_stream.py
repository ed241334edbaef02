"""DenseCheckpoint: which tensors are linear layers, what they are rounded to, and every refusal."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from support import tiny_llama
from torch import Tensor

import mixed_gemm
from mixed_gemm.formats import CheckpointError, open_checkpoint, save_checkpoint
from mixed_gemm.quantization import DenseCheckpoint
from mixed_gemm.quantization.stream import fitting_group

BIASED = f"{tiny_llama.BLOCK}.self_attn.q_proj"


def dense_tensors() -> dict[str, Tensor]:
    tensors = tiny_llama.plain_tensors()
    for name, (n, k) in tiny_llama.LINEARS.items():
        tensors[f"{name}.weight"] = tiny_llama.grid(name, n, k, 4, 32, False).weight().half()
    tensors[f"{BIASED}.bias"] = tiny_llama.bias(BIASED, tiny_llama.HIDDEN)
    return tensors


def write(folder: Path, tensors: dict[str, Tensor] | None = None, **config: Any) -> Path:
    folder.mkdir(exist_ok=True)
    save_file(tensors or dense_tensors(), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({**tiny_llama.CONFIG, **config}))
    (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.mark.parametrize(("bits", "group_size", "symmetric"), [(4, 32, True), (8, -1, False)])
def test_layers_are_quantize_weight_of_the_tensors(
    tmp_path: Path, bits: int, group_size: int, symmetric: bool
) -> None:
    tensors = dense_tensors()
    save_checkpoint(
        DenseCheckpoint(
            write(tmp_path / "dense"), bits=bits, group_size=group_size, symmetric=symmetric
        ),
        tmp_path / "out",
    )
    found = open_checkpoint(tmp_path / "out")
    assert set(found.layers) == set(tiny_llama.LINEARS)
    for name in tiny_llama.LINEARS:
        weight = found.layer(name)
        q, scales, zeros = mixed_gemm.quantize_weight(
            tensors[f"{name}.weight"], bits, group_size, symmetric
        )
        assert torch.equal(weight.q, q) and torch.equal(weight.scales, scales)
        assert (weight.zeros is None) == symmetric
        if zeros is not None:
            assert weight.zeros is not None and torch.equal(weight.zeros, zeros)
    bias = found.layer(BIASED).bias
    assert bias is not None and torch.equal(bias, tensors[f"{BIASED}.bias"])
    for name in tiny_llama.plain_tensors():
        assert torch.equal(found.tensor(name), tensors[name])
    assert (tmp_path / "out" / "tokenizer.json").is_file()
    assert found.config["hidden_size"] == tiny_llama.HIDDEN


def test_skip_embeddings_and_routers_stay_dense(tmp_path: Path) -> None:
    tensors = dense_tensors() | {
        "model.layers.0.mlp.gate.weight": torch.ones(4, 64),
        "transformer.wte.weight": torch.ones(64, 64),
        "model.mask.weight": torch.ones(64, 64, dtype=torch.int64),
    }
    dense = DenseCheckpoint(write(tmp_path, tensors), group_size=32, skip=("lm_head", "mlp"))
    assert set(dense.layers) == {x for x in tiny_llama.LINEARS if "self_attn" in x}
    mlp = {x for x in tiny_llama.LINEARS if "mlp" in x}
    others = {"lm_head", "model.embed_tokens", "model.layers.0.mlp.gate", "transformer.wte"}
    assert set(dense.ignore) == mlp | others
    assert dense.nbytes == 4 * 64 * 64 * 2


def test_no_skip_quantizes_the_head(tmp_path: Path) -> None:
    assert "lm_head" in DenseCheckpoint(write(tmp_path), group_size=32, skip=()).layers


@pytest.mark.parametrize(
    ("k", "asked", "found"),
    [(64, 128, 64), (64, 48, 32), (96, 128, 96), (960, 128, 96), (72, 64, -1), (8, 16, -1)],
)
def test_groups_that_do_not_fit_become_the_largest_that_do(k: int, asked: int, found: int) -> None:
    assert fitting_group(k, asked) == found


def test_other_groups_are_told_and_readable(tmp_path: Path) -> None:
    """K is 64, and 128 of down_proj."""
    dense = DenseCheckpoint(write(tmp_path / "dense"), group_size=48)
    assert dense.refit == dict.fromkeys(tiny_llama.LINEARS, 32)
    save_checkpoint(dense, tmp_path / "out")
    found = open_checkpoint(tmp_path / "out")
    assert found.format.endswith("pack-quantized")
    assert {info.group_size for info in found.layers.values()} == {32}
    dense = DenseCheckpoint(tmp_path / "dense", group_size=128)
    assert set(dense.refit.values()) == {64} and len(dense.refit) == 6
    save_checkpoint(dense, tmp_path / "mixed")
    assert {x.scales.shape[0] for x in open_checkpoint(tmp_path / "mixed")} == {1}


def test_a_ragged_last_group_on_request(tmp_path: Path) -> None:
    dense = DenseCheckpoint(write(tmp_path / "dense"), group_size=48, ragged=True)
    assert dense.refit == {}
    save_checkpoint(dense, tmp_path / "out")
    found = open_checkpoint(tmp_path / "out")
    assert found.format.endswith("mixed-gemm-packed")
    assert {info.group_size for info in found.layers.values()} == {48}


def test_what_does_not_fit_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="bits must be 4 or 8, got 3"):
        DenseCheckpoint(write(tmp_path), bits=3)


def test_what_is_no_dense_checkpoint_is_refused(tmp_path: Path, repository: Path) -> None:
    with pytest.raises(CheckpointError, match=r"quantized already \(awq\).*convert"):
        DenseCheckpoint(repository / "tests" / "data" / "awq_gemm")
    with pytest.raises(CheckpointError, match="no tensor is the weight of a linear layer"):
        DenseCheckpoint(write(tmp_path, {"a.weight": torch.ones(4)}))


def test_nan_in_a_weight_names_file_and_tensor(tmp_path: Path) -> None:
    tensors = dense_tensors()
    tensors[f"{BIASED}.weight"][3, 5] = torch.nan
    dense = DenseCheckpoint(write(tmp_path / "dense", tensors), group_size=32)
    with pytest.raises(CheckpointError, match=rf"model\.safetensors: {BIASED}\.weight: .*finite"):
        save_checkpoint(dense, tmp_path / "out")


STOCK = """
import sys, torch, transformers
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
assert model.lm_head.weight is model.model.embed_tokens.weight
assert "mixed_gemm" not in sys.modules
with torch.no_grad():
    torch.save(model(torch.arange(20)[None]).logits, sys.argv[2])
"""


def test_a_tied_head_is_not_taken_for_a_quantized_one(tmp_path: Path) -> None:
    """No file has it. Stock transformers, in a process of its own, asks the config."""
    transformers = pytest.importorskip("transformers")
    options = {**tiny_llama.CONFIG, "tie_word_embeddings": True}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**options))
    model.save_pretrained(tmp_path / "dense")
    save_checkpoint(DenseCheckpoint(tmp_path / "dense", group_size=16), tmp_path / "once")
    save_checkpoint(open_checkpoint(tmp_path / "once"), tmp_path / "twice")
    for folder in ("once", "twice"):
        logits = tmp_path / f"{folder}.pt"
        subprocess.run([sys.executable, "-c", STOCK, tmp_path / folder, logits], check=True)
        ours = mixed_gemm.from_pretrained(tmp_path / folder)
        with torch.no_grad():
            wanted = ours(torch.arange(20)[None]).logits
        assert torch.allclose(torch.load(logits), wanted.float(), rtol=1e-3, atol=1e-4)
