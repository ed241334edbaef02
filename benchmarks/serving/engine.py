"""An engine of vLLM in this process, and what transformers says to the same tokens."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The environment of all runs of this folder. Without processes of its own an engine ends with its
# object, and many fit into one run.
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "TOKENIZERS_PARALLELISM": "false",
}


def prepare(place: str = "first") -> None:
    """Set up this process, before it imports vLLM."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    os.environ["MIXED_GEMM_VLLM"] = place


def register() -> None:
    """Offer the plug-in of this source tree, which need not be installed."""
    from mixed_gemm.integrations import vllm

    vllm.register()


# Prompts of more than 16 tokens take more than one step.
SETTINGS: dict[str, Any] = {
    "max_model_len": 256, "max_num_seqs": 4, "max_num_batched_tokens": 16,
    "enable_prefix_caching": True, "enable_chunked_prefill": True,
}  # fmt: skip


@contextmanager
def engine(folder: Path, dtype: str, **options: Any) -> Iterator[Any]:
    """Start a vLLM engine on a folder; it is gone afterwards, and so is one that did not start.
    Prefix caching and chunked prefill are on, as by default."""
    from vllm import LLM
    from vllm.distributed import cleanup_dist_env_and_memory

    settings = {**SETTINGS, "enforce_eager": True, "skip_tokenizer_init": True}
    found: Any = None
    try:
        found = LLM(model=str(folder), dtype=dtype, **{**settings, **options})
        yield found
    finally:
        # At once: an object that ends later would take the groups of the next engine along.
        if found is not None:
            found.llm_engine.engine_core.shutdown()
        del found
        gc.collect()
        cleanup_dist_env_and_memory()


def tokens(llm: Any, prompt: list[int], count: int) -> list[int]:
    """Return the most probable continuation."""
    from vllm import SamplingParams, TokensPrompt

    asked = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True, detokenize=False)
    (out,) = llm.generate([TokensPrompt(prompt_token_ids=prompt)], asked, use_tqdm=False)
    return list(out.outputs[0].token_ids)


# How far the best token must lead the second in every step, in logits, so that the order in which
# two programs add up bfloat16 does not decide: six of its steps between 4 and 8. Activations that
# are rounded to 8 bits carry an order further, over a lead of four. Prompts are tried until one
# does.
LEAD = 0.19


@dataclass(frozen=True)
class Continuation:
    """leads: of the best token over the second, in logits, for each of ``tokens``."""

    prompt: list[int]
    tokens: list[int]
    leads: list[float]


def load(folder: Path, dtype: str) -> Any:
    """Load the model of a folder in transformers, which reads a quantized one with mixed_gemm."""
    import torch
    import transformers

    import mixed_gemm

    quantized = "quantization_config" in json.loads((folder / "config.json").read_text())
    read: Any = mixed_gemm if quantized else transformers.AutoModelForCausalLM
    return read.from_pretrained(folder, dtype=getattr(torch, dtype))


def continuation(model: Any, prompts: list[list[int]], count: int) -> Continuation:
    """Continue the first prompt whose least lead is LEAD or more, else the one with the largest.
    Prompts of one length are run together before, and tried in the order of their leads."""
    if len(prompts) > 1 and len(set(map(len, prompts))) == 1:
        leads = [min(x.leads) for x in continuations(model, prompts, count)]
        order = sorted(range(len(prompts)), key=lambda i: -leads[i])
        prompts = [prompts[i] for i in order[:5]]
    found: list[Continuation] = []
    for prompt in prompts:
        found += continuations(model, [prompt], count)
        if min(found[-1].leads) >= LEAD:
            break
    return max(found, key=lambda x: min(x.leads))


def continuations(model: Any, prompts: list[list[int]], count: int) -> list[Continuation]:
    """Continue prompts of one length, as one batch."""
    import torch

    ids = torch.tensor(prompts)
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=count,
        min_new_tokens=count, do_sample=False, output_logits=True,
        return_dict_in_generate=True, pad_token_id=0, eos_token_id=None,
    )  # fmt: skip
    best = torch.stack(out.logits, 1).float().topk(2, dim=-1).values  # [prompts, count, 2]
    leads = (best[..., 0] - best[..., 1]).tolist()
    new = out.sequences[:, ids.shape[1] :].tolist()
    return [Continuation(*x) for x in zip(prompts, new, leads, strict=True)]


def expected(
    folder: Path, dtype: str, prompts: list[list[int]], count: int
) -> tuple[list[int], list[int], float]:
    """Return (the prompt, its continuation, the least lead) of transformers."""
    found = continuation(load(folder, dtype), prompts, count)
    return found.prompt, found.tokens, min(found.leads)
