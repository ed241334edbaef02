"""Microseconds of an MLP of a decoder, and what it launches: layers one by one, gate and up as one
product, and with one op between the products.

    python -m benchmarks.gated_mlp --out FILE.json [--threads 2] [--rounds 200]

All are in one process and take turns, each on weights of its own; figures are medians and minima,
the host's time included. Launches are the ops of torch.profiler that compute something: views and
new memory count for nothing. A kernel that torch.compile writes counts as one.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

import mixed_gemm
from mixed_gemm.nn.plain_mlp import PlainMLP

from .about import about_run

# Name -> hidden size, intermediate size.
SHAPES = {"SmolLM2-135M": (576, 1536), "Llama-8B": (4096, 14336)}
WAYS = ("apart", "joined", "gated")
WARM_UP = 5
# Ops that compute nothing.
_VIEWS = (
    "aten::as_strided", "aten::chunk", "aten::detach", "aten::empty", "aten::empty_like",
    "aten::empty_strided", "aten::narrow", "aten::slice", "aten::split", "aten::to",
    "aten::transpose", "aten::unsafe_split_with_sizes", "aten::view", "aten::reshape", "detach",
    "aten::split_with_sizes", "aten::resolve_conj", "aten::is_inference",
)  # fmt: skip


def mlps(sizes: tuple[int, int], dtype: torch.dtype, device: torch.device) -> dict[str, Any]:
    """The same MLP in each way."""
    hidden, inner = sizes
    torch.manual_seed(0)
    shapes = ((hidden, inner), (hidden, inner), (inner, hidden))
    gate, up, down = (
        mixed_gemm.Linear.from_float(nn.Linear(*shape, bias=False).to(device, dtype))
        for shape in shapes
    )
    apart: nn.Module = PlainMLP(gate, up, down, "silu").eval()
    x = torch.randn(1, hidden, device=device, dtype=dtype)
    found = {way: copy.deepcopy(apart) for way in WAYS}
    mixed_gemm.fuse_(found["joined"], example_inputs=x, mlps=False)
    assert mixed_gemm.fuse_(found["gated"], example_inputs=x, mlps=True).mlps
    return found


def launches(run: Callable[[], Any]) -> list[str]:
    """The names of the ops that a call launches, in their order."""
    from torch.profiler import ProfilerActivity, profile

    run()
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        run()
    events = [x for x in profiled.events() or [] if not x.cpu_children]
    names = [x.name for x in sorted(events, key=lambda x: x.time_range.start)]
    return [
        x for x in names if x not in _VIEWS and x.startswith(("aten::", "mixed_gemm::", "graph"))
    ]


def timed(
    runs: dict[str, Callable[[], Any]], rounds: int, device: torch.device
) -> dict[str, list[float]]:
    """Microseconds of each turn, in turns that change their order."""
    times: dict[str, list[float]] = {way: [] for way in runs}
    for i in range(rounds + WARM_UP):
        for way in WAYS if i % 2 else WAYS[::-1]:
            if device.type == "cuda":
                torch.cuda.synchronize()
            begun = time.perf_counter()
            runs[way]()
            if device.type == "cuda":
                torch.cuda.synchronize()
            times[way].append((time.perf_counter() - begun) * 1e6)
    return {way: x[WARM_UP:] for way, x in times.items()}


@torch.no_grad()
def rows(shape: str, dtype: str, given: argparse.Namespace) -> list[dict[str, Any]]:
    """One row for each number of tokens, eager and compiled."""
    device, found = torch.device(given.device), []
    models = mlps(SHAPES[shape], getattr(torch, dtype), device)
    for compiled in (False, True):
        for m in given.tokens:
            x = torch.randn(m, SHAPES[shape][0], device=device, dtype=getattr(torch, dtype))
            runs: dict[str, Callable[[], Any]] = {}
            torch._dynamo.reset()
            for way, model in models.items():
                run: Any = torch.compile(model, fullgraph=True) if compiled else model
                runs[way] = partial(run, x)
            counts = {way: launches(run) for way, run in runs.items()}
            us = timed(runs, given.rounds, device)
            told = {"shape": shape, "dtype": dtype, "m": m, "compiled": compiled}
            medians = {f"{way}_us": round(statistics.median(us[way]), 1) for way in WAYS}
            minima = {f"{way}_us_min": round(min(us[way]), 1) for way in WAYS}
            found.append(told | medians | minima | {"launches": counts})
            print(found[-1], flush=True)
    return found


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "float32"])
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--commit", help="where there is no git to ask")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(argv)
    torch.set_num_threads(given.threads)
    import torch._inductor.config as inductor

    inductor.cpp.enable_kernel_profile = True  # the kernels that it writes have names there
    found = [row for shape in given.shapes for dtype in given.dtypes
             for row in rows(shape, dtype, given)]  # fmt: skip
    meta = about_run(torch.device(given.device), {}, given.commit) | {"threads": given.threads}
    lines = ",\n".join(map(json.dumps, found))
    given.out.write_text(f'{{"meta": {json.dumps(meta)},\n"rows": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
