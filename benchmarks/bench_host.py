"""What a call costs the host: one row through a layer of 1024 x 1024, beside nn.Linear.

    python benchmarks/bench_host.py [--out FILE.json] [--device cuda]

Each call is repeated and the fastest of several rounds kept, in microseconds. On a GPU the product
itself takes less than the host needs to ask for it, and the queue is drained between rounds. It
uses only what the package has had since it has a Linear, so that an older one can be measured
beside.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from about import about_run

import mixed_gemm

SIZE = 1024  # N and K
CALLS = 1000
ROUNDS = 9


def host_us(call: Callable[[], object], device: torch.device) -> float:
    for _ in range(CALLS // 10):
        call()
    best = math.inf
    for _ in range(ROUNDS):
        if device.type == "cuda":
            torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(CALLS):
            call()
        best = min(best, time.perf_counter() - begun)
    return 1e6 * best / CALLS


def measured(device: torch.device) -> dict[str, dict[str, float]]:
    """mode -> call -> microseconds."""
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    dense = torch.nn.Linear(SIZE, SIZE, device=device, dtype=dtype).requires_grad_(False)
    layer = mixed_gemm.Linear.from_float(dense)
    bias = dense.bias.detach()
    x = torch.randn(1, SIZE, device=device, dtype=dtype)
    asking = x.clone().requires_grad_()
    op, linear = torch.ops.mixed_gemm.fpA_intB_gemm, torch.nn.functional.linear
    packed, scales = layer.b_packed, layer.scales

    def calls(x: torch.Tensor) -> dict[str, Callable[[], object]]:
        return {
            "nn.Linear": lambda: dense(x),
            "mixed_gemm.Linear": lambda: layer(x),
            "F.linear": lambda: linear(x, dense.weight, bias),
            "torch.ops": lambda: op(x, packed, scales, None, bias, bits=4, group_size=128),
        }

    modes: dict[str, tuple[Any, torch.Tensor]] = {
        "no_grad": (torch.no_grad, x),
        "inference_mode": (torch.inference_mode, x),
        "gradients recorded, none asked for": (torch.enable_grad, x),
        "with a gradient": (torch.enable_grad, asking),
    }
    found = {}
    for mode, (context, rows) in modes.items():
        with context():
            found[mode] = {name: host_us(call, device) for name, call in calls(rows).items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", help="where there is no git to ask")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = measured(torch.device(options.device))
    for mode, calls in found.items():
        print(f"{mode}: " + ", ".join(f"{name} {us:.1f}" for name, us in calls.items()))
    if options.out:
        meta: dict[str, Any] = {"torch": torch.__version__}
        if options.device != "cpu":
            meta = about_run({}, options.commit)
        text = json.dumps({"meta": meta, "us": found}, indent=1)
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
