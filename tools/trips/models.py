"""Tiny models with random weights, of the architectures that the tables are about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import transformers

VOCABULARY = 96
TOKENS = [[1, 5, 7, 40, 2, 9], [3, 3, 9, 21, 60, 8]]
CAUSAL = "AutoModelForCausalLM"
IMAGES = "AutoModelForImageClassification"


@dataclass(frozen=True)
class Model:
    """name: of the architecture. make: the model with the random weights of transformers.
    auto: the class of transformers that loads it.
    """

    name: str
    make: Callable[[], Any]
    auto: str = CAUSAL

    def build(self) -> Any:
        """float32, eval mode, the same at every call. Weights are larger than those of a fresh
        model, whose logits say little of its layers, and no bias is zero."""
        torch.manual_seed(0)
        model = self.make().float().eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.dim() > 1:
                    parameter.mul_(3)
                elif name.endswith("bias"):
                    parameter.normal_(std=0.1)
        return model

    def inputs(self) -> Mapping[str, torch.Tensor]:
        """The inputs of its forward."""
        if self.auto == CAUSAL:
            return {"input_ids": torch.tensor(TOKENS)}
        generator = torch.Generator().manual_seed(0)
        return {"pixel_values": torch.randn(2, 3, 32, 32, generator=generator)}


def _language(hidden: int, **more: Any) -> dict[str, Any]:
    return {
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 64,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": None,
        "pad_token_id": 0,
        **more,
    }


def _causal(name: str, config: str, **options: Any) -> Model:
    def make() -> Any:
        found = getattr(transformers, config)(**options)
        return transformers.AutoModelForCausalLM.from_config(found)

    return Model(name, make)


def llama(hidden: int, **more: Any) -> Model:
    return _causal("Llama", "LlamaConfig", **_language(hidden, **more))


def vit() -> Model:
    def make() -> Any:
        config = transformers.ViTConfig(
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=1,
            num_attention_heads=4,
            image_size=32,
            patch_size=8,
        )
        return transformers.ViTForImageClassification(config)

    return Model("ViT", make, IMAGES)


def architectures() -> tuple[Model, ...]:
    """The nine that the second table is about."""
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2}
    return (
        llama(64),
        _causal("Qwen2", "Qwen2Config", **_language(64)),
        _causal("Qwen3", "Qwen3Config", **_language(64, head_dim=16)),
        _causal(
            "OPT", "OPTConfig", hidden_size=64, ffn_dim=128, num_hidden_layers=1, pad_token_id=0,
            num_attention_heads=4, vocab_size=VOCABULARY, max_position_embeddings=64,
            word_embed_proj_dim=64, bos_token_id=1, eos_token_id=None,
        ),
        _causal(
            "GPT-2", "GPT2Config", n_embd=64, n_layer=1, n_head=4, vocab_size=VOCABULARY,
            n_positions=64, bos_token_id=1, eos_token_id=None, pad_token_id=0,
        ),
        vit(),
        _causal("Mixtral", "MixtralConfig", **_language(64, **experts)),
        _causal(
            "Qwen3-MoE", "Qwen3MoeConfig",
            **_language(64, head_dim=16, num_experts=4, num_experts_per_tok=2,
                        moe_intermediate_size=64),
        ),
        _causal("gpt-oss", "GptOssConfig", **_language(64, head_dim=16, **experts)),
    )  # fmt: skip
