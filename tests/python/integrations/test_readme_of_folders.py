"""save_pretrained leaves a README.md where other readers refuse the folder, and only there."""

from __future__ import annotations

import copy
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from support import tiny_llama

import mixed_gemm

transformers = pytest.importorskip("transformers", reason="optional: hf extra")
RAGGED = {"bits": 4, "group_size": 48}
IDS = torch.tensor([[1, 5, 7]])


@pytest.fixture
def dense(tmp_path: Path) -> Path:
    return Path(tiny_llama.write_dense(tmp_path / "dense"))


def quantized(dense: Path, **options: Any) -> Any:
    model = transformers.AutoModelForCausalLM.from_pretrained(dense, dtype=torch.float32)
    mixed_gemm.quantize_(model, progress=False, **options)
    return model


def run_block(readme: Path) -> Any:
    """What the code of a README makes, of the folder it is in."""
    (code,) = re.findall(r"```python\n(.*?)```", readme.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code.replace("this folder", str(readme.parent)), names)
    return names["model"]


def test_it_says_how_to_load_and_that_works(dense: Path, tmp_path: Path) -> None:
    model = quantized(dense, **RAGGED)
    saved = tmp_path / "saved"
    model.save_pretrained(saved)
    assert "a ragged last group" in (saved / "README.md").read_text()
    again = run_block(saved / "README.md")
    assert torch.equal(again(IDS).logits, model(IDS).logits)
    # A model that was read writes one, too, as copies do.
    for i, other in enumerate((again, copy.deepcopy(again), copy.deepcopy(model))):
        other.save_pretrained(tmp_path / str(i), max_shard_size="10KB")
        assert (tmp_path / str(i) / "README.md").exists()
    pickle.loads(pickle.dumps(model)).save_pretrained(tmp_path / "pickled")


def test_none_where_others_read_the_folder(dense: Path, tmp_path: Path) -> None:
    quantized(dense, bits=8, group_size=-1).save_pretrained(tmp_path / "saved")
    assert not (tmp_path / "saved" / "README.md").exists()
    config = mixed_gemm.MixedGemmConfig(bits=4, group_size=32)
    model = mixed_gemm.from_pretrained(dense, quantization_config=config)
    model.save_pretrained(tmp_path / "loaded")
    assert not (tmp_path / "loaded" / "README.md").exists()


def test_what_is_there_stays(dense: Path, tmp_path: Path) -> None:
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "README.md").write_text("mine")
    quantized(dense, **RAGGED).save_pretrained(tmp_path / "saved")
    assert (tmp_path / "saved" / "README.md").read_text() == "mine"
    quantized(dense, **RAGGED).save_pretrained(tmp_path / "other", is_main_process=False)
    assert not (tmp_path / "other" / "README.md").exists()


def test_of_images_it_names_the_class(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4,
        image_size=32, patch_size=8,
    )  # fmt: skip
    model = transformers.ViTForImageClassification(config).eval()
    mixed_gemm.quantize_(model, **RAGGED, skip="projection", progress=False)
    model.save_pretrained(tmp_path)
    again, x = run_block(tmp_path / "README.md"), torch.randn(1, 3, 32, 32)
    assert torch.equal(again(x).logits, model(x).logits)


def test_without_quantized_layers_it_is_transformers_own(dense: Path, tmp_path: Path) -> None:
    model = quantized(dense, **RAGGED)
    model.save_pretrained(tmp_path / "first")
    for name, layer in list(model.named_modules()):
        if isinstance(layer, mixed_gemm.Linear):
            model.set_submodule(name, layer.to_float())
    model.save_pretrained(tmp_path / "second")
    assert not (tmp_path / "second" / "README.md").exists()
