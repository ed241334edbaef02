"""Models that were quantized and have become dense again, as a whole or in one layer: files hold
what the model computes, in the form that the readers of dense files look for.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from support.language_models import SIZES_OF_MIXTURES as SIZES
from torch import nn

import mixed_gemm

MODELS = {
    "GPT-2": transformers.GPT2Config(
        n_embd=64, n_layer=1, n_head=4, vocab_size=96, n_positions=32, bos_token_id=1,
        eos_token_id=None,
    ),
    "Llama": transformers.LlamaConfig(**SIZES),
    "Qwen3-MoE": transformers.Qwen3MoeConfig(**SIZES, num_experts=4, moe_intermediate_size=64),
    "gpt-oss": transformers.GptOssConfig(**SIZES, num_local_experts=4),
    "Llama 4": transformers.Llama4TextConfig(
        **{**SIZES, "num_experts_per_tok": 1}, num_local_experts=4, intermediate_size_mlp=64,
        interleave_moe_layer_step=1, attention_chunk_size=32,
    ),
}  # fmt: skip
IDS = torch.arange(7).view(1, 7)


def quantized(name: str) -> Any:
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(MODELS[name]).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.1)
    mixed_gemm.quantize_(model, "w8a16")
    return model


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(IDS).logits
    return found


def kinds(model: nn.Module) -> dict[str, type[nn.Module]]:
    return {name: type(module) for name, module in model.named_modules()}


@pytest.mark.parametrize("name", MODELS)
def test_a_dequantized_model_is_read_as_the_dense_one_that_it_is(name: str, tmp_path: Path) -> None:
    quantized(name).save_pretrained(tmp_path / "quantized")
    model = mixed_gemm.from_pretrained(tmp_path / "quantized")
    before = logits(model)
    model.dequantize()
    assert not any(hasattr(x, "scheme") for x in model.parameters())
    torch.testing.assert_close(logits(model), before, rtol=1e-4, atol=1e-4)
    model.save_pretrained(tmp_path / "dense")
    again, told = type(model).from_pretrained(tmp_path / "dense", output_loading_info=True)
    assert not told["missing_keys"] and not told["unexpected_keys"]
    torch.testing.assert_close(logits(again), before, rtol=1e-4, atol=1e-4)
    if name != "Qwen3-MoE":  # whose experts stay linears by themselves, as they are in its files
        assert kinds(model) == kinds(again)


SAVERS: dict[str, Callable[[Any, Path], None]] = {
    "save_checkpoint": mixed_gemm.save_checkpoint,
    "save_pretrained": lambda model, folder: model.save_pretrained(folder),
}


@pytest.mark.parametrize("saver", SAVERS)
@pytest.mark.parametrize("name", MODELS)
def test_a_dense_weight_in_one_layer_is_saved_as_a_dense_layer(
    name: str, saver: str, tmp_path: Path
) -> None:
    model = quantized(name)
    layers = {x: m for x, m in model.named_modules() if isinstance(m, mixed_gemm.Linear)}
    # The square one of GPT-2, whose transpose would be read without a word.
    replaced = next(x for x in layers if x.endswith(("c_proj", "o_proj")))
    layers[replaced].weight = nn.Parameter(torch.randn_like(layers[replaced].weight) / 10)
    before = logits(model)
    SAVERS[saver](model, tmp_path)
    again = mixed_gemm.from_pretrained(tmp_path)
    found = {x for x, m in again.named_modules() if isinstance(m, mixed_gemm.Linear)}
    assert found == layers.keys() - {replaced}
    torch.testing.assert_close(logits(again), before, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "dense", (nn.Linear(128, 48), nn.Conv2d(16, 8, 3), nn.Embedding(40, 32)), ids=lambda x: str(x)
)
def test_a_layer_with_a_dense_weight_says_and_gives_it(dense: nn.Module) -> None:
    ours = {nn.Linear: mixed_gemm.Linear, nn.Conv2d: mixed_gemm.Conv2d}
    kind: Any = ours.get(type(dense), mixed_gemm.Embedding)
    layer = kind.from_float(dense)
    assert layer.is_quantized
    layer.weight = nn.Parameter(torch.randn_like(layer.weight))
    assert not layer.is_quantized
    assert torch.equal(layer.dequantize(), layer.weight)
    assert layer.dequantize(torch.float16).dtype == torch.float16
    assert torch.equal(layer.to_float().weight, layer.weight)
    if hasattr(layer, "to_quantized_weight"):
        said = "to_quantized_weight: weight must be quantized, got a Parameter of float32. Hint: "
        with pytest.raises(ValueError, match=said):
            layer.to_quantized_weight()
