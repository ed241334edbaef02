"""Small language models of transformers: ids of tokens, logits, sizes, and whether the head shares
the embedding's weight."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

import mixed_gemm

IDS = torch.tensor([[1, 5, 7, 11], [2, 3, 90, 98]])
# Of mixtures, but for their experts.
SIZES_OF_MIXTURES: dict[str, Any] = {
    "vocab_size": 96, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "max_position_embeddings": 64, "tie_word_embeddings": False, "num_experts_per_tok": 2,
}  # fmt: skip


def logits(model: Any, **more: Any) -> torch.Tensor:
    """Compute the logits for IDS.

    Args:
        model: of transformers. more: arguments of its forward.
    """
    with torch.no_grad():
        found: torch.Tensor = model(input_ids=IDS, **more).logits
    return found


def is_one(model: Any) -> bool:
    """Tell whether head and embedding have the very same weight."""
    return model.lm_head.weight is model.model.embed_tokens.weight


def with_a_layer_on_the_disk(model: Any, folder: Path) -> Any:
    """Save a quantized Llama of two layers, and read it with the second one left on the disk."""
    model.save_pretrained(folder / "model")
    names = ("model.embed_tokens", "model.norm", "model.rotary_emb", "lm_head", "model.layers.0")
    return mixed_gemm.from_pretrained(
        folder / "model", dtype=torch.bfloat16, offload_folder=folder / "disk",
        device_map={**dict.fromkeys(names, "cpu"), "model.layers.1": "disk"},
    )  # fmt: skip
