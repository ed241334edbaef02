"""GPT-2, whose linears are Conv1D: quantized, saved, loaded, quantized while loading, and by the
command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import mixed_gemm
from mixed_gemm.formats import open_checkpoint, save_checkpoint
from mixed_gemm.quantization import DenseCheckpoint

transformers = pytest.importorskip("transformers", minversion="5.17", reason="optional: hf extra")

TOKENS = torch.tensor([[1, 5, 7, 40, 2], [3, 3, 9, 21, 60]])
LAYERS = {f"transformer.h.0.{x}" for x in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")}
SCHEMES: dict[str, dict[str, Any]] = {
    "int4": {"group_size": 32},
    "int4 zeros": {"group_size": 32, "symmetric": False, "zero_mode": "add"},
    "int8": {"scheme": "w8a16"},
    "w8a8": {"scheme": "w8a8"},
    "w8a8 static": {"scheme": "w8a8", "activations": "static_azp", "smooth": 0.5},
    "fp8": {"scheme": "fp8"},
}


@pytest.fixture(autouse=True)
def quiet() -> None:
    transformers.utils.logging.disable_progress_bar()


def gpt2() -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_embd=64, n_layer=1, n_head=4, vocab_size=64, n_positions=32, bos_token_id=1,
        eos_token_id=None,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.1)
    return model


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(TOKENS).logits
    return found


def quantized(model: Any) -> set[str]:
    return {name for name, x in model.named_modules() if isinstance(x, mixed_gemm.Linear)}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_conv1d_is_quantized_saved_and_loaded(scheme: str, tmp_path: Path) -> None:
    model, options = gpt2(), SCHEMES[scheme]
    dense = logits(model)
    if "smooth" in options:
        options = {**options, "calibration": [TOKENS]}
    report = mixed_gemm.quantize_(model, **options, progress=False)
    assert set(report.quantized) == LAYERS == quantized(model)
    assert {"transformer.wte", "transformer.wpe", "lm_head"} == set(report.skipped)
    wanted = logits(model)
    assert (wanted - dense).norm() / dense.norm() < (0.15 if "int4" in scheme else 0.05)
    model.save_pretrained(tmp_path / "saved")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    assert quantized(again) == LAYERS and torch.equal(logits(again), wanted)
    save_checkpoint(open_checkpoint(tmp_path / "saved"), tmp_path / "converted")
    again.save_pretrained(tmp_path / "twice")
    for folder in ("converted", "twice"):
        text = json.loads((tmp_path / folder / "config.json").read_text())
        groups = text["quantization_config"]["config_groups"].values()
        assert {group["format"] for group in groups} == {"mixed-gemm-packed"}
        again = mixed_gemm.from_pretrained(tmp_path / folder)
        assert torch.equal(logits(again), wanted)


def test_conv1d_is_quantized_while_it_loads_and_by_the_command_line(tmp_path: Path) -> None:
    model = gpt2()
    model.save_pretrained(tmp_path / "dense")
    mixed_gemm.quantize_(model, group_size=32, progress=False)
    config = mixed_gemm.MixedGemmConfig(group_size=32)
    loaded = mixed_gemm.from_pretrained(tmp_path / "dense", quantization_config=config)
    assert quantized(loaded) == LAYERS and torch.equal(logits(loaded), logits(model))
    loaded.save_pretrained(tmp_path / "saved")
    dense = DenseCheckpoint(tmp_path / "dense", group_size=32)
    assert set(dense.layers) == LAYERS
    save_checkpoint(dense, tmp_path / "out")
    for folder in ("saved", "out"):
        again = mixed_gemm.from_pretrained(tmp_path / folder)
        assert torch.equal(logits(again), logits(model))


def test_a_model_of_which_nothing_is_quantized_is_saved_as_it_is(tmp_path: Path) -> None:
    model = gpt2()
    report = mixed_gemm.quantize_(model, group_size=32, skip="h", progress=False)
    assert report.quantized == ()
    model.save_pretrained(tmp_path)
    assert "quantization_config" not in json.loads((tmp_path / "config.json").read_text())
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(logits(again), logits(model))


def test_a_model_of_which_a_convolution_alone_is_quantized_is_saved_dense(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        image_size=16, patch_size=8,
    )  # fmt: skip
    model = transformers.ViTForImageClassification(config).eval()
    mixed_gemm.quantize_(
        model,
        lambda name, layer: "w8a16" if isinstance(layer, torch.nn.Conv2d) else None,
        progress=False,
    )
    x = torch.randn(1, 3, 16, 16)
    model.save_pretrained(tmp_path)
    assert "quantization_config" not in json.loads((tmp_path / "config.json").read_text())
    again = transformers.AutoModelForImageClassification.from_pretrained(tmp_path)
    with torch.no_grad():
        assert torch.allclose(again(x).logits, model(x).logits, atol=1e-5)
