"""The questions to an engine of the check on a GPU, in a process of their own (``jobs``)."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from .. import engine
from ..models import WIDER, drawn
from . import engines, jobs
from .jobs import Line, Point

# The engine is asked for one sequence, several of unlike lengths, and texts of one step.
NEW, SEVERAL, TEXTS = 32, (3, 9, 17, 24, 33, 40, 48, 57, 64, 72, 80, 90, 100, 110, 120, 128), 40
SETTINGS: dict[str, Any] = {
    "max_model_len": 512, "max_num_seqs": 48, "max_num_batched_tokens": 4096,
    "kv_cache_memory_bytes": 1 << 28, "gpu_memory_utilization": 0.02,
    "enable_prefix_caching": False, "seed": 0,
}  # fmt: skip
CAPTURED = [1, len(SEVERAL)]  # sequences of a step that a CUDA graph is recorded for
WRITE_SECONDS = 180  # until a model is written


def unwritten(folder: Path) -> Path:
    """The file that says that a model will not come."""
    return folder.with_name(f"{folder.name}.unwritten")


def wait_for(folder: Path) -> None:
    """Raises:
    FileNotFoundError: no model comes.
    """
    end = time.monotonic() + WRITE_SECONDS
    while not folder.is_dir():
        if unwritten(folder).exists() or time.monotonic() > end:
            raise FileNotFoundError(f"no model in {folder}")
        time.sleep(jobs.POLL_SECONDS)


def measure(point: Point) -> Line:
    """Ask an engine: kernels and, by part, sequences with log-probabilities."""
    os.environ["MIXED_GEMM_VLLM"] = point["place"]
    wait_for(Path(point["folder"]))
    graphs: dict[str, Any] = {"compilation_config": {"cudagraph_capture_sizes": CAPTURED}}
    settings = {**SETTINGS, **(graphs if point["mode"] == "graphs" else {})}
    start = time.perf_counter()
    with engine.engine(
        Path(point["folder"]), point["dtype"], enforce_eager=point["mode"] == "eager",
        tensor_parallel_size=point["ranks"], attention_config={"backend": point["attention"]},
        **settings,
    ) as llm:  # fmt: skip
        ready = time.perf_counter() - start
        vocabulary = WIDER["vocab_size"]
        (one,) = drawn(1, 20, vocabulary, seed=1)
        several = [drawn(1, n, vocabulary, seed=n)[0] for n in SEVERAL]
        return {
            "ready_s": round(ready, 1),
            "kernels": engines.kernels(llm),
            "decode": decoded(llm, [one]) + decoded(llm, several),
            "prompt": read_prompts(llm, drawn(TEXTS, 60, vocabulary, seed=2)),
        }


def decoded(llm: Any, prompts: list[list[int]]) -> list[Any]:
    """Return (ids, how many were known, log-probabilities) of each prompt's continuation."""
    from vllm import SamplingParams, TokensPrompt

    asked = SamplingParams(
        temperature=0, max_tokens=NEW, min_tokens=NEW, ignore_eos=True, detokenize=False, logprobs=1
    )
    given = [TokensPrompt(prompt_token_ids=x) for x in prompts]
    said = []
    for prompt, out in zip(prompts, llm.generate(given, asked, use_tqdm=False), strict=True):
        new = out.outputs[0]
        values = [at[i].logprob for i, at in zip(new.token_ids, new.logprobs, strict=True)]
        said.append((prompt + list(new.token_ids), len(prompt), values))
    return said


def read_prompts(llm: Any, prompts: list[list[int]]) -> list[Any]:
    """Return the same of each prompt behind its first token."""
    from vllm import SamplingParams, TokensPrompt

    asked = SamplingParams(temperature=0, max_tokens=1, detokenize=False, prompt_logprobs=0)
    given = [TokensPrompt(prompt_token_ids=x) for x in prompts]
    said = []
    for prompt, out in zip(prompts, llm.generate(given, asked, use_tqdm=False), strict=True):
        known = zip(prompt[1:], out.prompt_logprobs[1:], strict=True)
        said.append((prompt, 1, [at[i].logprob for i, at in known]))
    return said


if __name__ == "__main__":
    sys.exit(jobs.main(measure, engines.preload))
