"""The time that a call takes of the host: one row through a layer of 1024 x 1024, beside nn.Linear;
and, for each layer, through 48 layers that torch.compile made one function of.

    python -m benchmarks.host_time [--out FILE.json] [--device cuda]

The calls take turns, many in a row each, and the fastest of several rounds is kept, in
microseconds. On a GPU the product itself takes less than the host needs to ask for it, and the
queue is drained between rounds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

import mixed_gemm
from mixed_gemm.selection.timing import Call, host_us

from .about import about_run

SIZE = 1024  # N and K
LAYERS, SMALL, SHARED = 48, 64, 64  # sizes of a stack: N and K, and columns that share a scale
CALLS = 1000  # calls in a row
ROUNDS = 9


def best_us(
    calls: dict[str, Call], device: torch.device, in_a_row: int = CALLS
) -> dict[str, float]:
    """The least time of each call; the first round warms up."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS + 1):
        for name, call in calls.items():
            found[name].append(host_us(call, device, in_a_row))
    return {name: min(us[1:]) for name, us in found.items()}


def measured(device: torch.device) -> dict[str, dict[str, float]]:
    """Return mode -> call -> microseconds."""
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    dense = torch.nn.Linear(SIZE, SIZE, device=device, dtype=dtype).requires_grad_(False)
    layer = mixed_gemm.Linear.from_float(dense)
    bias = dense.bias.detach()
    x = torch.randn(1, SIZE, device=device, dtype=dtype)
    asking = x.clone().requires_grad_()
    op, linear = torch.ops.mixed_gemm.fpA_intB_gemm, torch.nn.functional.linear
    packed, scales = layer.b_packed, layer.scales

    def calls(x: torch.Tensor) -> dict[str, Call]:
        return {
            "nn.Linear": lambda: dense(x),
            "mixed_gemm.Linear": lambda: layer(x),
            "F.linear": lambda: linear(x, dense.weight, bias),
            "torch.ops": lambda: op(x, packed, scales, None, bias, bits=4, group_size=128),
        }

    modes: dict[str, tuple[Callable[[], Any], torch.Tensor]] = {
        "no_grad": (torch.no_grad, x),
        "inference_mode": (torch.inference_mode, x),
        "gradients recorded, none asked for": (torch.enable_grad, x),
        "with a gradient": (torch.enable_grad, asking),
    }
    found = {}
    for mode, (context, rows) in modes.items():
        with context():
            found[mode] = best_us(calls(rows), device)
    return found


def _with_parts(layer: mixed_gemm.Linear) -> torch.nn.Module:
    """Return the op on buffers, the least that a compiled layer can cost."""

    class Parts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("packed", layer.b_packed)
            self.register_buffer("scales", layer.scales)
            self.register_buffer("bias", layer.bias.detach())

        def forward(self, x: torch.Tensor) -> Any:
            op = torch.ops.mixed_gemm.fpA_intB_gemm
            return op(x, self.packed, self.scales, None, self.bias, bits=4, group_size=SHARED)

    return Parts()


def compiled(device: torch.device) -> dict[str, float]:
    """Return microseconds a layer of a call of a compiled stack, by what it is made of."""
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    torch._dynamo.config.recompile_limit = 64
    dense = [
        torch.nn.Linear(SMALL, SMALL, device=device, dtype=dtype).requires_grad_(False)
        for _ in range(LAYERS)
    ]
    quantized = [mixed_gemm.Linear.from_float(x, group_size=SHARED) for x in dense]
    stacks = {
        "nn.Linear": torch.nn.Sequential(*dense),
        "mixed_gemm.Linear": torch.nn.Sequential(*quantized),
        "the op on buffers": torch.nn.Sequential(*map(_with_parts, quantized)),
    }
    row = torch.randn(1, SMALL, device=device, dtype=dtype)
    with torch.no_grad():
        calls: dict[str, Call] = {x: partial(torch.compile(y), row) for x, y in stacks.items()}
        return {
            name: us / LAYERS for name, us in best_us(calls, device, 1 + CALLS // LAYERS).items()
        }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", help="where there is no git to ask")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(argv)
    device = torch.device(options.device)
    torch.set_num_threads(1)
    found = measured(device)
    found[f"compiled, {LAYERS} layers of {SMALL} x {SMALL}, a layer"] = compiled(device)
    for mode, calls in found.items():
        print(f"{mode}: " + ", ".join(f"{name} {us:.1f}" for name, us in calls.items()))
    if options.out:
        meta = about_run(device, {}, options.commit)
        options.out.write_text(json.dumps({"meta": meta, "us": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
