"""Times of an engine on a GPU: a process of the step (``jobs``)."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from .. import engine
from ..models import drawn
from . import engines, jobs, trace, variants
from .jobs import Group, Line, Point
from .samples import Sampled, decode_step

PROMPT, STEPS, SAMPLES, LONG = 128, 128, 5, 2048
CACHE_TOKENS = 36000  # 128 sequences of PROMPT + STEPS tokens, in whole blocks, and more
START_SECONDS = 300  # seconds for the start of a group, where one of it does not come up


class Timed:
    """An engine that is up."""

    def __init__(self, llm: Any, traces: Path, vocabulary: int) -> None:
        self.llm, self.traces, self.vocabulary, self._seed = llm, traces, vocabulary, 0

    def seconds(self, batch: int, new: int, length: int = PROMPT) -> float:
        """Return the seconds until ``batch`` new prompts are read and each has ``new`` tokens."""
        from vllm import SamplingParams, TokensPrompt

        self._seed += 1
        given = [
            TokensPrompt(prompt_token_ids=x)
            for x in drawn(batch, length, self.vocabulary, self._seed)
        ]
        asked = SamplingParams(
            temperature=0, max_tokens=new, min_tokens=new, ignore_eos=True, detokenize=False
        )
        start = time.perf_counter()
        self.llm.generate(given, asked, use_tqdm=False)
        return time.perf_counter() - start

    def batch(self, batch: int) -> Line:
        self.seconds(batch, 4)  # warms up
        prompts = [self.seconds(batch, 1) for _ in range(SAMPLES)]
        whole = [self.seconds(batch, 1 + STEPS) for _ in range(SAMPLES)]
        step = decode_step(whole, prompts, STEPS)
        return {
            "step_ms": round(step.median * 1e3, 3),
            "spread_ms": round(step.spread * 1e3, 3),
            "prompts_ms": round(Sampled.of(prompts).median * 1e3, 2),
            "tokens_per_second": round(batch * (1 + STEPS) / Sampled.of(whole).median),
        }

    def long_prompt(self) -> Line:
        self.seconds(1, 1, LONG)
        found = Sampled.of([self.seconds(1, 1, LONG) for _ in range(SAMPLES)])
        return {"ms": round(found.median * 1e3, 2), "spread_ms": round(found.spread * 1e3, 2)}

    def traced(self, batch: int, step_ms: float, layers: int) -> Line:
        """The GPU's part of a step: its time, and how long it waits in one without a profiler."""
        self.llm.start_profile()
        self.seconds(batch, 12)
        self.llm.stop_profile()
        found = trace.gpu_time(trace.newest(self.traces), layers, 5e3 * step_ms)
        return {**found, "idle_us": round(step_ms * 1e3 - found["gpu_us"])}


def measure(point: Point) -> Line:
    name, ranks, layers = point["name"], point["ranks"], point["layers"]
    shape = variants.SHAPES[point["of"]]
    group = Group(Path(point["group_folder"]), point["group"])
    traces = Path(point["group_folder"]) / f"trace-{point['group'].index(name)}"
    start = time.perf_counter()
    with engine.engine(
        Path(point["folder"]), point["dtype"], enforce_eager=False, load_format="dummy",
        max_model_len=LONG + 256, max_num_seqs=max(point["batches"]), max_num_batched_tokens=8192,
        kv_cache_memory_bytes=shape.cache_bytes(CACHE_TOKENS, ranks, layers),
        gpu_memory_utilization=0.05,
        enable_prefix_caching=False, tensor_parallel_size=ranks,
        attention_config={"backend": point["attention"]},
        compilation_config={"cudagraph_capture_sizes": point["batches"]},
        profiler_config={
            "profiler": "torch", "torch_profiler_dir": str(traces), "ignore_frontend": True,
            "torch_profiler_with_stack": False, "torch_profiler_dump_cuda_time_total": False,
        },
    ) as llm:  # fmt: skip
        line: Line = {"ready_s": round(time.perf_counter() - start, 1)}
        line["held"] = engines.kernels(llm)
        group.arrive(name)
        group.wait(START_SECONDS, Path(point["behind"]) if point["behind"] else None)
        group.take_turn()
        timed = Timed(llm, traces, shape.config["vocab_size"])
        line["batches"] = {str(b): timed.batch(b) for b in point["batches"]}
        line["long_prompt"] = timed.long_prompt()
        for batch in point["batches"] if point["traces"] else ():
            of = line["batches"][str(batch)]
            try:
                of |= timed.traced(batch, of["step_ms"], layers)
            except (OSError, ValueError) as error:  # the times above still count
                of["trace_error"] = str(error)[:300]
    return line


if __name__ == "__main__":
    sys.exit(jobs.main(measure, engines.preload))
