"""Milliseconds of a decode step with layers fused and apart, and how many ops each runs.

    python -m benchmarks.fused_step MODEL --out FILE.json [--dtypes bfloat16 float32]

MODEL is what ``mixed_gemm.from_pretrained`` loads: a folder, a .gguf file. Both models are in one
process and take turns, one token at a time behind a prompt of eight; figures are medians, the
host's time included.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import mixed_gemm

from .about import about_run
from .counting import counting

PROMPT = 8
WARM_UP = 5


@torch.no_grad()
def row(model: Any, apart: Any, rounds: int, device: torch.device) -> dict[str, Any]:
    """Return what a step of one sequence takes, of both models.

    Args:
        rounds: steps of each, in turns; the first few are left out.
    """
    ids = torch.arange(1, PROMPT + 1, device=device)[None]
    models = (model, apart)
    caches = [each(ids, use_cache=True).past_key_values for each in models]
    token = ids[:, :1]
    ops = []
    for each, cache in zip(models, caches, strict=True):
        with counting() as counted:
            each(token, past_key_values=cache, use_cache=True)
        ops.append(counted.calls)
    times: list[list[float]] = [[], []]
    for i in range(rounds):
        for which in (0, 1) if i % 2 else (1, 0):
            if device.type == "cuda":
                torch.cuda.synchronize()
            begun = time.perf_counter()
            models[which](token, past_key_values=caches[which], use_cache=True)
            if device.type == "cuda":
                torch.cuda.synchronize()
            times[which].append((time.perf_counter() - begun) * 1e3)
    found = [statistics.median(x[WARM_UP:]) for x in times]
    layers = model.config.num_hidden_layers
    return {
        "fused_ms": round(found[0], 3), "apart_ms": round(found[1], 3),
        "ratio": round(found[0] / found[1], 3), "fused_ms_min": round(min(times[0]), 3),
        "apart_ms_min": round(min(times[1]), 3), "fused_ops_a_layer": ops[0] / layers,
        "apart_ops_a_layer": ops[1] / layers,
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("model")
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "float32"])
    parser.add_argument("--threads", type=int, nargs="+", default=[torch.get_num_threads()])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--commit", help="where there is no git to ask")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(argv)
    device = torch.device(given.device)
    rows = []
    for dtype in given.dtypes:
        apart = mixed_gemm.from_pretrained(given.model, dtype=getattr(torch, dtype)).to(device)
        model = copy.deepcopy(apart)
        report = mixed_gemm.fuse_(model)
        for threads in given.threads:
            torch.set_num_threads(threads)
            told = {"dtype": dtype, "threads": threads, "outputs_differ_by": report.difference}
            rows.append(told | row(model, apart, given.rounds, device))
            print(rows[-1], flush=True)
    meta = about_run(device, {}, given.commit) | {"model": Path(given.model).name}
    lines = ",\n".join(map(json.dumps, rows))
    given.out.write_text(f'{{"meta": {json.dumps(meta)},\n"rows": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
