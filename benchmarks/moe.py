"""Milliseconds of a layer of experts, quantized and dense, behind its router.

    python -m benchmarks moe --out FILE.json [--shapes qwen3 mixtral] [--device cuda]

The dense experts are transformers' own, by each of its ways to compute them; all sides have the
same weights, rows and routing, and take turns. ``balanced``: each token goes to experts drawn
without regard to the others. ``skewed``: a fifth of the experts gets four fifths of the choices.
Calls are timed one by one, since experts wait for the GPU and no CUDA graph takes them. Between two
calls a buffer larger than the caches is written, so that no weight stays in them.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import mixed_gemm

from .about import about_run

DENSE = ("eager", "grouped_mm")  # transformers' names for its implementations
FLUSHED = 64 << 20  # bytes


@dataclass(frozen=True)
class Shape:
    """A layer: sizes as transformers calls them, experts, and how many of them a token goes to."""

    hidden_size: int
    intermediate_size: int
    experts: int
    k: int


SHAPES = {
    "qwen3": Shape(2048, 768, 128, 8),  # Qwen3-30B-A3B
    "mixtral": Shape(4096, 14336, 8, 2),  # Mixtral-8x7B
    "tiny": Shape(64, 64, 4, 2),
}


def dense_experts(shape: Shape, device: torch.device) -> nn.Module:
    """Make a model whose ``experts`` are those of transformers' Qwen3-MoE, in bfloat16."""
    from transformers import Qwen3MoeConfig
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeExperts

    config: Any = Qwen3MoeConfig(
        hidden_size=shape.hidden_size, moe_intermediate_size=shape.intermediate_size,
        num_experts=shape.experts, num_experts_per_tok=shape.k,
    )  # fmt: skip
    config._experts_implementation = DENSE[0]
    model = nn.Module()
    with device:
        model.experts = Qwen3MoeExperts(config).to(torch.bfloat16)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.02)
    return model.eval()


def routing(shape: Shape, rows: int, skewed: bool, device: torch.device) -> tuple[Tensor, Tensor]:
    """Draw the experts of each row, ``[rows, k]`` without repeats, and their weights.

    Args:
        rows: tokens. skewed: see above.
    """
    popular = max(1, shape.experts // 5)
    odds = torch.ones(shape.experts)
    if skewed:
        odds[:popular] = 4.0 * (shape.experts - popular) / popular
    index = torch.multinomial(odds.expand(rows, -1), shape.k)
    weights = torch.rand(rows, shape.k).softmax(-1).to(torch.bfloat16)
    return index.to(device), weights.to(device)


@torch.no_grad()
def times(
    calls: dict[str, Callable[[], Tensor]], rounds: int, device: torch.device
) -> dict[str, float]:
    """Return name -> median milliseconds, the calls in turns.

    Args:
        calls: of the sides. rounds: of each, behind one that is not counted.
    """
    buffer = torch.empty(FLUSHED, dtype=torch.uint8, device=device)
    found: dict[str, list[float]] = {name: [] for name in calls}
    for count in range(rounds + 1):
        for name, call in calls.items():
            buffer.add_(1)
            if device.type == "cuda":
                torch.cuda.synchronize()
            begun = time.perf_counter()
            call()
            if device.type == "cuda":
                torch.cuda.synchronize()
            if count:
                found[name].append((time.perf_counter() - begun) * 1e3)
    return {name: statistics.median(each) for name, each in found.items()}


def rows_of(
    name: str, schemes: Sequence[str], rows: Sequence[int], rounds: int, device: torch.device
) -> list[dict[str, Any]]:
    """Measure one shape.

    Args:
        name: of ``SHAPES``. schemes: of the quantized sides. rows: tokens. rounds: of each side.
    """
    shape = SHAPES[name]
    model: Any = dense_experts(shape, device)
    sides: dict[str, Any] = {scheme: copy.deepcopy(model) for scheme in schemes}
    for scheme, side in sides.items():
        mixed_gemm.quantize_(side, scheme, progress=False)
    found = []
    for skewed in (False, True):
        for count in rows:
            x = torch.randn(count, shape.hidden_size, device=device, dtype=torch.bfloat16)
            index, weights = routing(shape, count, skewed, device)

            def dense(way: str, given: Any = (x, index, weights)) -> Tensor:
                model.experts.config._experts_implementation = way
                out: Tensor = model.experts(*given)
                return out

            calls: dict[str, Callable[[], Tensor]] = {
                way: lambda way=way: dense(way)  # type: ignore[misc]
                for way in DENSE
            }
            for scheme, side in sides.items():
                calls[scheme] = lambda side=side, given=(x, index, weights): side.experts(*given)  # type: ignore[misc]
            taken = times(calls, rounds, device)
            best = min(taken[way] for way in DENSE)
            for side_name, milliseconds in taken.items():
                found.append({
                    "shape": name, "routing": "skewed" if skewed else "balanced", "T": count,
                    "side": side_name, "ms": round(milliseconds, 3),
                    "of_best_dense": round(milliseconds / best, 3),
                })  # fmt: skip
            told = ", ".join(f"{each} {taken[each]:.2f}" for each in taken)
            print(f"{name} T={count} {'skewed' if skewed else 'balanced'}: {told}", flush=True)
    return found


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks moe", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["qwen3", "mixtral"])
    parser.add_argument("--schemes", nargs="+", default=["w4a16", "w8a16", "mxfp4"])
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 4, 16, 64, 256])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--commit", help="where there is no git to ask")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(argv)
    device = torch.device(given.device)
    torch.manual_seed(0)
    rows = []
    for name in given.shapes:
        rows += rows_of(name, given.schemes, given.rows, given.rounds, device)
    import transformers

    meta = about_run(device, {}, given.commit) | {"transformers": transformers.__version__}
    lines = ",\n".join(map(json.dumps, rows))
    given.out.write_text(f'{{"meta": {json.dumps(meta)},\n"rows": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
