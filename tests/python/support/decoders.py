"""Small decoders of transformers whose channels differ, as those of real ones do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

VOCABULARY = 300
KINDS = ("Llama", "Qwen2", "Qwen3")


def decoder(kind: str = "Llama", layers: int = 3, dtype: torch.dtype = torch.float32) -> Any:
    import transformers

    torch.manual_seed(0)
    sizes = {
        "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": layers,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": VOCABULARY,
        "tie_word_embeddings": False,
    }  # fmt: skip
    if kind == "Qwen3":
        sizes["head_dim"] = 16
    config = getattr(transformers, f"{kind}Config")(**sizes)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("proj.weight"):
                p.mul_(torch.exp(torch.randn(p.shape[1]) / 2))
            if name.endswith("bias") or "norm" in name:
                p.add_(torch.randn_like(p) / 10)
    return model.to(dtype)


def batches(count: int = 6, seed: int = 1) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(VOCABULARY, (2, 64), generator=generator) for _ in range(count)]


@torch.no_grad()
def logits(model: Any, seed: int = 7) -> Tensor:
    """On a batch that calibrates nothing."""
    found: Tensor = model(batches(1, seed)[0]).logits
    return found


def error(model: Any, dense: Tensor) -> float:
    return float((logits(model) - dense).norm() / dense.norm())


def words(count: int, seed: int) -> str:
    """Random words that :func:`save_tokenizer` knows."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(VOCABULARY, (count,), generator=generator)
    return " ".join(f"w{i}" for i in ids.tolist())


def save_tokenizer(folder: Path) -> None:
    """A tokenizer with one token for each word: w0, w1, ..."""
    import tokenizers
    import transformers

    vocabulary = {f"w{i}": i for i in range(VOCABULARY)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="w0"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
