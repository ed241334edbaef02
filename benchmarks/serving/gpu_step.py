"""Milliseconds of a decode step of vLLM's engine on a GPU, in Llama-3.1-8B's or Qwen3-30B-A3B's
shape with random weights: dense, with vLLM's own kernels, and with ours.

    python -m benchmarks.serving.gpu_step --out FILE [--variants "W4A16 g128" FP8] [--seconds 540]
    python -m benchmarks.serving.gpu_step --out FILE --shape qwen3_moe --memory 130

Engines with CUDA graphs, each in a process of its own; those that fit into the memory together
start together and are timed one after another. A sequence reads 128 tokens; a sample decodes 128
more; the result is the median of five with their spread, and beside it the time of the GPU alone
(from a trace), how long the GPU waits, and the reading of a prompt of 2,048 tokens. The section
"step" of FILE ("step of Qwen3-30B-A3B" for that shape) has a line for each variant; the exit
status is 75 where some are missing, so that the next call with the same FILE goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .gpu import engines, random_weights, variants
from .gpu.jobs import Group, Job, Line, Point, carry_out, file_name
from .gpu.options import DTYPES, options, section
from .gpu.report import UNFINISHED, Report, about
from .gpu.timed import CACHE_TOKENS, LONG, PROMPT, SAMPLES, STEPS
from .gpu.variants import Variant

KEYS = ("name", "dtype")
BATCHES = (1, 8, 32, 128)
THREADS, LEAST_SECONDS = 3, 90


def point_of(variant: Variant, given: argparse.Namespace) -> Point:
    return {
        "name": variant.name, "weights": variant.weights, "kernels": variant.kernels,
        "scheme": variant.scheme, "of": variant.of, "dtype": given.dtype,
        "ranks": given.tensor_parallel,
        "layers": given.layers, "batches": given.batches, "attention": given.attention,
        "traces": given.traces, "behind": str(given.behind or ""),
    }  # fmt: skip


# Fields of a point that only the process needs.
_INNER = ("of", "batches", "attention", "folder", "group", "group_folder", "traces", "behind")


def short(line: Line) -> Line:
    """Keep the part of a line that goes into the results."""
    kept = {k: v for k, v in line.items() if k not in _INNER}
    return kept if "error" in line else {**kept, "batches": line["batches"]}


def jobs_of(group: list[Variant], number: int, given: argparse.Namespace) -> list[Job]:
    names = [x.name for x in group]
    folder = given.work / f"group-{time.time_ns()}-{number}"
    plugin = str(random_weights.write_metadata(given.work / "random_weights"))
    made = []
    for variant in group:
        point = {
            **point_of(variant, given), "group": names, "group_folder": str(folder),
            "folder": str(variants.write_shape(variant, given.work / "shapes", given.layers,
                                               given.dtype)),
        }  # fmt: skip
        name = file_name(variant.name)
        environment = engines.environment(given.work, name, variant.place, THREADS)
        environment["PYTHONPATH"] = f"{plugin}:{environment['PYTHONPATH']}"
        environment |= variant.environment
        module = f"{__package__}.gpu.timed"
        made.append(Job(f"step {variant.name}", module, (point,), environment))
    return made


def run_group(jobs: list[Job], work: Path, end: float, report: Report) -> None:
    (first,) = jobs[0].points
    group = Group(Path(first["group_folder"]), first["group"])

    def note(line: Line) -> None:
        print(line["name"], json.dumps(line.get("batches", line.get("error")))[:600], flush=True)
        report.note(short(line))

    def one(job: Job) -> None:
        try:
            carry_out(job, work, end, note)
        finally:
            group.arrive(job.points[0]["name"])

    with ThreadPoolExecutor(len(jobs)) as pool:
        list(pool.map(one, jobs))


def arguments() -> argparse.ArgumentParser:
    parser = options(__doc__)
    parser.add_argument("--variants", nargs="*", default=[], help="parts of names; all by default")
    parser.add_argument("--batches", nargs="*", type=int, default=list(BATCHES))
    parser.add_argument("--dtype", default="bfloat16", choices=DTYPES)
    parser.add_argument("--shape", default="llama", choices=variants.SHAPES)
    parser.add_argument("--layers", type=int, help="all of the shape by default")
    parser.add_argument("--memory", type=float, default=76, help="GiB of a GPU for one group")
    parser.add_argument("--together", type=int, default=5, help="engines that start together")
    parser.add_argument("--traces", action=argparse.BooleanOptionalAction, default=True,
                        help="time the GPU alone too")  # fmt: skip
    parser.add_argument("--behind", type=Path, help="a file: engines are timed once it is there")
    return parser


def parsed(given: list[str] | None = None) -> argparse.Namespace:
    found = arguments().parse_args(given)
    found.layers = found.layers or variants.SHAPES[found.shape].layers
    return found


def main() -> int:
    given = parsed()
    end = time.monotonic() + given.seconds
    shape, ranks, layers = variants.SHAPES[given.shape], given.tensor_parallel, given.layers
    cache = shape.cache_bytes(CACHE_TOKENS, ranks, layers)
    meta = about(
        given.commit, shape=f"{shape.name}, {layers} layers", tensor_parallel=ranks,
        prompt=PROMPT, steps=STEPS, samples=SAMPLES, long_prompt=LONG, attention=given.attention,
    )  # fmt: skip
    name = "step" if given.shape == "llama" else f"step of {shape.name}"
    report = Report(given.out, section(name, ranks), KEYS, meta)

    def missing() -> list[Variant]:
        asked = variants.chosen(given.variants, given.shape)
        return [x for x in asked if not report.done(point_of(x, given))]

    together = variants.groups(missing(), ranks, cache, layers, given.memory, given.together)
    for number, group in enumerate(together):
        if end - time.monotonic() < LEAST_SECONDS:
            break
        run_group(jobs_of(group, number, given), given.work, end, report)
    left = [x.name for x in missing()]
    print(f"not measured: {', '.join(left) or 'nothing'}")
    return UNFINISHED if left else 0


if __name__ == "__main__":
    sys.exit(main())
