"""Small language models of transformers: ids of tokens, logits, sizes, and whether the head shares
the embedding's weight."""

from __future__ import annotations

from typing import Any

import torch

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
