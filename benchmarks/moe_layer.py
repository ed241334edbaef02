"""Microseconds of a layer of experts on a GPU behind its router, by ``mixed_gemm.fused_moe``.

    python -m benchmarks moe_layer --out FILE.json [--shapes qwen3 mixtral] [--peers marlin]

Calls are captured in CUDA graphs that take turns over eight routings, which read more weights than
the L2 cache holds. ``layer`` is everything behind the router; ``products`` the two products alone,
which is what a peer's number is; the rest are single ops. ``marlin``: the two products of vLLM, of
int4 in groups of 128, whose alignment of tokens is made outside of the timed part.
``grouped_mm``: the layer in bfloat16 by torch's product. Routings are those of moe.py.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import mixed_gemm
from mixed_gemm import Scheme, StackedWeight, fused_moe
from mixed_gemm.ops.problem import num_groups, packed_shape
from mixed_gemm.selection.timing import time_interleaved, timers_of

from .about import about_run
from .moe import SHAPES, Shape, routing
from .ops.peer_libraries import marlin_moe

ROUTINGS = 8
DTYPE = torch.bfloat16
SCHEMES = {
    "int4": Scheme.weight_only(4, 128),
    "int4_g32": Scheme.weight_only(4, 32),
    "int8": Scheme.weight_only(8, -1),
    "mxfp4": Scheme.float4("e8m0", 32),
    "nvfp4": Scheme.float4("e4m3", 16),
}


def stacked(scheme: Scheme, experts: int, n: int, k: int) -> StackedWeight:
    """Random codes and scales of so many weights ``[n, k]``."""
    shape = (experts, *packed_shape(n, k, scheme.weight_type))
    codes = torch.randint(0, 256, shape, dtype=torch.uint8, device="cuda")
    groups = num_groups(k, scheme.group_size)
    scales = (torch.rand(experts, groups, n, device="cuda") * 0.01).to(DTYPE)
    is_float = "weight" in scheme.gemm_options
    factor = torch.ones(experts, n, device="cuda") if is_float else None
    return StackedWeight(codes, scales, scheme, factor=factor)


@dataclass(frozen=True)
class Case:
    """Rows and where they go: one of several routings."""

    x: Tensor
    ids: Tensor
    weights: Tensor
    sorted_rows: tuple[Tensor, Tensor, Tensor]  # the result of moe_permute
    inner: Tensor  # the rows that the second product takes


def cases_of(shape: Shape, rows: int, skewed: bool) -> list[Case]:
    found = []
    for _ in range(ROUTINGS):
        ids, weights = routing(shape, rows, skewed, torch.device("cuda"))
        x = torch.randn(rows, shape.hidden_size, device="cuda", dtype=DTYPE)
        inner = torch.randn(rows * shape.k, shape.intermediate_size, device="cuda", dtype=DTYPE)
        permuted = mixed_gemm.moe_permute(x, ids, shape.experts)
        found.append(Case(x, ids, weights.float(), permuted, inner))
    return found


def own_calls(
    name: str, first: StackedWeight, second: StackedWeight, cases: Sequence[Case], parts: bool
) -> dict[str, list[Callable[[], object]]]:
    """Return the calls of the layer, of its two products, and of each op.

    Args:
        name: of the format. parts: whether single ops are timed as well.
    """
    calls: dict[str, list[Callable[[], object]]] = {
        f"{name} layer": [partial(fused_moe, c.x, first, second, c.weights, c.ids) for c in cases],
        f"{name} products": [partial(_products, first, second, c) for c in cases],
    }
    if parts:
        wide = first.product(*cases[0].sorted_rows[:2])
        calls["moe_permute"] = [
            partial(mixed_gemm.moe_permute, c.x, c.ids, first.count) for c in cases
        ]
        calls[f"{name} first"] = [partial(first.product, *c.sorted_rows[:2]) for c in cases]
        calls["gated_activation"] = [partial(mixed_gemm.gated_activation, wide)]
        calls[f"{name} second"] = [
            partial(second.product, c.inner, c.sorted_rows[1]) for c in cases
        ]
        calls["moe_combine"] = [
            partial(mixed_gemm.moe_combine, c.sorted_rows[0], c.sorted_rows[2], c.weights)
            for c in cases
        ]
    return calls


def _products(first: StackedWeight, second: StackedWeight, case: Case) -> None:
    rows, offs, _ = case.sorted_rows
    first.product(rows, offs)
    second.product(case.inner, offs)


def dense_calls(w13: Tensor, w2: Tensor, cases: Sequence[Case]) -> list[Callable[[], object]]:
    """Return the calls of the same layer in bfloat16, with our routing.

    Args:
        w13: ``[E, K, 2 * I]``. w2: ``[E, I, K]``.
    """

    def layer(case: Case) -> Tensor:
        rows, offs, positions = mixed_gemm.moe_permute(case.x, case.ids, w13.shape[0])
        inner = mixed_gemm.gated_activation(torch._grouped_mm(rows, w13, offs))
        out = torch._grouped_mm(inner, w2, offs)
        return mixed_gemm.moe_combine(out, positions, case.weights)

    return [partial(layer, c) for c in cases]


def rows_of(name: str, given: argparse.Namespace, deadline: float) -> list[dict[str, Any]]:
    shape = SHAPES[name]
    found: list[dict[str, Any]] = []
    e, k, i = shape.experts, shape.hidden_size, shape.intermediate_size
    weights = {
        scheme: (stacked(SCHEMES[scheme], e, 2 * i, k), stacked(SCHEMES[scheme], e, k, i))
        for scheme in given.schemes
    }
    peers = {"marlin": marlin_moe(e, k, i, shape.k)} if "marlin" in given.peers else {}
    dense = None
    if "grouped_mm" in given.peers:
        dense = (
            torch.randn(e, k, 2 * i, device="cuda", dtype=DTYPE) * 0.02,
            torch.randn(e, i, k, device="cuda", dtype=DTYPE) * 0.02,
        )
    for skewed in (False, True):
        for rows in given.rows:
            if time.monotonic() > deadline:
                return found
            cases = cases_of(shape, rows, skewed)
            calls: dict[str, Sequence[Callable[[], object]]] = {}
            for scheme, (first, second) in weights.items():
                parts = scheme == given.schemes[0] and not skewed
                calls.update(own_calls(scheme, first, second, cases, parts))
            if dense is not None:
                calls["grouped_mm layer"] = dense_calls(*dense, cases)
            for peer, products in peers.items():
                calls[f"{peer} products"] = [products(c.x, c.ids, c.inner) for c in cases]
            with torch.no_grad():
                taken = time_interleaved(timers_of(calls, torch.device("cuda")), given.rounds)
            kind = "skewed" if skewed else "balanced"
            us = {side: round(timing.us, 2) for side, timing in taken.items()}
            flops = 6 * rows * shape.k * k * i
            found.append({"shape": name, "routing": kind, "T": rows, "us": us, "flops": flops})
            print(name, kind, rows, us, flush=True)
    return found


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks moe_layer", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["qwen3", "mixtral"])
    parser.add_argument("--schemes", nargs="+", choices=SCHEMES, default=list(SCHEMES))
    parser.add_argument(
        "--rows", nargs="+", type=int, default=[1, 8, 32, 128, 512, 2048, 4096, 8192]
    )
    parser.add_argument("--peers", nargs="*", choices=["marlin", "grouped_mm"], default=[])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=600, help="then no further row begins")
    parser.add_argument("--commit", help="where there is no git to ask")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(argv)
    torch.manual_seed(0)
    deadline = time.monotonic() + given.seconds
    rows = []
    for name in given.shapes:
        rows += rows_of(name, given, deadline)
        torch.cuda.empty_cache()
    meta = about_run(torch.device("cuda"), {}, given.commit)
    lines = ",\n".join(map(json.dumps, rows))
    given.out.write_text(f'{{"meta": {json.dumps(meta)},\n"rows": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
