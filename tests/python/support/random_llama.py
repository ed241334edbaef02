"""A Llama of two small layers with random weights."""

from __future__ import annotations

from typing import Any

import torch


def random_llama(**options: Any) -> Any:
    """The same at every call.

    Args:
        options: of transformers' LlamaConfig.
    """
    import transformers

    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        **{
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 100,
            "max_position_embeddings": 64,
            "tie_word_embeddings": False,
            **options,
        }
    )
    return transformers.LlamaForCausalLM(config).eval()
