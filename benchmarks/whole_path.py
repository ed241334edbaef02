"""Seconds and memory of all that a user does with a model, beside the dense model.

    python -m benchmarks.whole_path --out FILE.json [--models llama qwen3_moe] [--sides w4a16 mxfp4]

Each side, the dense model or a scheme, has a process of its own. It loads the dense folder,
quantizes the model, writes tokens, computes one token and 256 at once, compiles the model, saves
it, loads what it saved, and quantizes the dense folder once more while that loads. All three models
must write the same tokens. Weights are random. A step is timed once; the least of several calls
counts for tokens and for computing. "peak_gb" is the most memory that the process held during the
step, pages of mapped files included; on a GPU what torch had allocated there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
import transformers
from torch import Tensor

import mixed_gemm

from .about import about_run

T = TypeVar("T")
_COMMON = {
    "hidden_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 8192,
    "max_position_embeddings": 2048,
}  # fmt: skip
# Model -> its class, and what its configuration has beside _COMMON.
MODELS: dict[str, tuple[str, dict[str, int]]] = {
    "llama": ("Llama", {"intermediate_size": 4096, "num_hidden_layers": 12}),
    "qwen3_moe": (
        "Qwen3Moe",
        {"moe_intermediate_size": 512, "num_hidden_layers": 4, "num_experts": 64,
         "num_experts_per_tok": 8, "head_dim": 128},
    ),
}  # fmt: skip
PROMPT, TOKENS, CALLS = 32, 32, 10


def write_dense(model: str, folder: Path) -> None:
    """Write the dense model, in bfloat16."""
    name, own = MODELS[model]
    config = getattr(transformers, f"{name}Config")(**_COMMON | own, dtype=torch.bfloat16)
    torch.manual_seed(0)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)


class Steps:
    """Runs the steps of one side and keeps their rows."""

    def __init__(self, told: dict[str, Any], device: torch.device) -> None:
        self.rows: list[dict[str, Any]] = []
        self._told, self._device = told, device

    def __call__(self, step: str, run: Callable[[], T], calls: int = 1, per: int = 1) -> T:
        """Time ``run``: the least of ``calls``, over ``per``."""
        self._forget_peak()
        least = float("inf")
        for _ in range(calls):
            self._wait()
            begun = time.perf_counter()
            found = run()
            self._wait()
            least = min(least, (time.perf_counter() - begun) / per)
        row = {"step": step, "seconds": float(f"{least:.4g}"), "peak_gb": self._peak_gb()}
        self.rows.append(self._told | row)
        return found

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()

    def _forget_peak(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        else:
            Path("/proc/self/clear_refs").write_text("5")  # sets VmHWM to what is held now

    def _peak_gb(self) -> float:
        if self._device.type == "cuda":
            return round(torch.cuda.max_memory_allocated() / 1e9, 2)
        lines = Path("/proc/self/status").read_text().splitlines()
        kib = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
        return round(kib * 1024 / 1e9, 2)


class Side:
    """Runs all that a user does with one side: "dense", or a scheme."""

    def __init__(self, side: str, folder: Path, told: dict[str, Any], device: str) -> None:
        self.steps = Steps(told, torch.device(device))
        self._side, self._folder, self._device = side, folder, device
        self._written = folder.parent / f"{folder.name}-{side}"
        self._prompt = torch.arange(PROMPT, device=device)[None]

    def run(self) -> list[dict[str, Any]]:
        """Return the rows of all steps."""
        wanted = self._first()
        read: dict[str, Callable[[], Any]] = {"load it again": partial(self._load, self._written)}
        if self._side != "dense":
            asked = mixed_gemm.MixedGemmConfig(self._side)
            read["quantize while loading"] = partial(
                self._load, self._folder, quantization_config=asked
            )
        for step, load in read.items():
            if not torch.equal(self._tokens(self.steps(step, load)), wanted):
                raise RuntimeError(f"{self._side}: the model writes other tokens after: {step}")
        return self.steps.rows

    def _first(self) -> Tensor:
        """Run all steps of the first model; return the tokens that it writes."""
        steps, zeros = self.steps, self._prompt.new_zeros(1, 256)
        model: Any = steps("load the dense folder", partial(self._load, self._folder))
        if self._side != "dense":
            quantize = partial(mixed_gemm.quantize_, model, self._side, progress=False)
            steps("quantize_", quantize)
        self._tokens(model)
        found = steps("write a token", partial(self._tokens, model), 3, TOKENS)
        for count in (1, 256):
            steps(f"compute {count}", partial(model, zeros[:, :count], use_cache=False), CALLS)
        compiled: Any = torch.compile(model)
        call = partial(compiled, zeros[:, :1], use_cache=False)
        steps("compile", call)
        steps("compute 1, compiled", call, CALLS)
        steps("save", partial(model.save_pretrained, self._written))
        return found

    def _load(self, folder: Path, **options: Any) -> Any:
        load = transformers.AutoModelForCausalLM.from_pretrained
        return load(folder, device_map=self._device, **options)

    def _tokens(self, model: Any) -> Tensor:
        lengths = {"max_new_tokens": TOKENS, "min_new_tokens": TOKENS}
        found: Tensor = model.generate(self._prompt, do_sample=False, **lengths)
        return found


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--sides", nargs="+", default=["dense", "w4a16", "w8a16", "mxfp4", "w8a8"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--commit", help="where there is no git to ask")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--folder", type=Path, help=argparse.SUPPRESS
    )  # given to the process that runs one side
    given = parser.parse_args(argv)
    torch.set_num_threads(given.threads)
    if given.folder is not None:
        (model,), (side,) = given.models, given.sides
        told = {"model": model, "side": side}
        with torch.no_grad():
            rows = Side(side, given.folder, told, given.device).run()
        given.out.write_text(json.dumps(rows))
        return
    rows = []
    with tempfile.TemporaryDirectory() as place:
        for model in given.models:
            folder, part = Path(place, model), Path(place, "rows.json")
            write_dense(model, folder)
            for side in given.sides:
                options = ["--models", model, "--sides", side, "--folder", str(folder)]
                options += ["--threads", str(given.threads), "--device", given.device]
                command = [sys.executable, "-m", "benchmarks.whole_path", "--out", str(part)]
                subprocess.run([*command, *options], check=True)
                rows += json.loads(part.read_text())
                print(*rows[-12:], sep="\n", flush=True)
    meta = about_run(torch.device(given.device), {}, given.commit)
    meta |= {"transformers": transformers.__version__}
    lines = ",\n".join(map(json.dumps, rows))
    given.out.write_text(f'{{"meta": {json.dumps(meta)},\n"rows": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
