"""The most probable token after each token of a text that is given, so that one choice that falls
otherwise changes no later one: in vLLM, in transformers, and in transformers with another order of
sums in its attention ("eager" instead of "sdpa"), which says how much of a difference is rounding.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

# Plain English that no model is sure of everywhere: about 160 tokens of SmolLM2.
TEXT = (
    "The old lighthouse stood at the end of the pier, and every evening the keeper climbed its "
    "ninety steps to light the lamp. Ships from Portugal and Norway passed by on their way to the "
    "harbor, carrying salt, timber and oranges. In winter the sea was rough and the fishermen "
    "stayed at home, mending their nets by the fire. One night in January a storm broke the "
    "window of the lamp room, and for the first time in forty years there was no light. The "
    "keeper took a lantern, walked out into the rain and waved it until the morning came. When "
    "the captain of the last ship came ashore, he asked who had saved them, and the children of "
    "the village pointed at the tower."
)
LIMIT = 160  # tokens


def text(dense: Path) -> list[int]:
    """Return token numbers of TEXT, or drawn ones for a model without a tokenizer."""
    from .models import drawn

    if not (dense / "tokenizer.json").is_file():
        (found,) = drawn(1, LIMIT)
        return found
    import transformers

    ids = transformers.AutoTokenizer.from_pretrained(dense)(TEXT).input_ids
    return list(ids)[:LIMIT]


def of_engine(llm: Any, ids: list[int]) -> list[int]:
    """Return the most probable token after each of ``ids`` but the last."""
    from vllm import SamplingParams, TokensPrompt

    asked = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=1, detokenize=False)
    (out,) = llm.generate([TokensPrompt(prompt_token_ids=ids)], asked, use_tqdm=False)
    return [
        next(token for token, found in at.items() if found.rank == 1)
        for at in out.prompt_logprobs[1:]
    ]


def of_model(model: Any, ids: list[int], attention: str) -> Any:
    """Return logits float32 ``[len(ids) - 1, vocabulary]`` of transformers."""
    import torch

    model.set_attn_implementation(attention)
    with torch.inference_mode():
        return model(torch.tensor([ids])).logits[0, :-1].float()


def compare(logits: Any, found: list[int]) -> dict[str, Any]:
    """Count the choices that are those of ``logits``, and find the largest lead, in logits, of the
    best token over the second among those that are not."""
    import torch

    best = logits.topk(2, dim=-1)
    leads = best.values[:, 0] - best.values[:, 1]
    differ = best.indices[:, 0] != torch.tensor(found)
    return {
        "of": len(found),
        "same": int((~differ).sum()),
        "lead_where_not": round(float(leads[differ].max()), 4) if bool(differ.any()) else 0.0,
    }


def measure(model: Any, ids: list[int], found: list[int]) -> dict[str, Any]:
    """Compare vLLM's choices and those of "eager" with those of "sdpa"."""
    logits, other = (of_model(model, ids, by) for by in ("sdpa", "eager"))
    model.set_attn_implementation("sdpa")
    moved = float((other - logits).abs().max())
    return {
        "engine": compare(logits, found),
        "eager": {**compare(logits, other.argmax(-1).tolist()), "moved": round(moved, 4)},
    }
