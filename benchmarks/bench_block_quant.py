"""block_quant_gemm on CUDA against a loop of torch._int_mm over the blocks of K, in one run.

    python benchmarks/bench_block_quant.py --out benchmarks/results/block_quant_h200.json

For each (N, K, M): the op, the candidates that are predicted to be near the best, and
    int_mm_loop           the same in torch: the rows rounded block by block (all blocks at once),
                          then for each block torch._int_mm and its sums scaled into fp32 ones, then
                          the cross terms of all blocks as one product
    int_mm_loop_products  the same without the rounding: the loop is given int8 rows and scales
    cublas                torch.nn.functional.linear in fp16
All by graph replay over rotated copies of the weight, interleaved. Prints a line for each, then how
many times faster the op is than the loop; the target is 5.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from about import about_run
from bench_scaled_mm import int8_ceiling
from results import Row, save
from suite import graphs_of_a_point
from timing import Timing, copies_for, measured_ceilings, time_interleaved

from mixed_gemm.selection.planning import device_string

OURS, LOOP, PRODUCTS, CUBLAS = "block_quant_gemm", "int_mm_loop", "int_mm_loop_products", "cublas"
SHAPES = ((4096, 4096), (14336, 4096), (4096, 14336), (8192, 8192))
MS = (1, 16, 64, 256, 1024, 4096)
LEAST_ROWS = 32  # torch._int_mm refuses 16 rows and fewer: those are padded
MOST_LOOPS = 2  # copies of the weight for the loops: a call takes far longer than L2 keeps anything
Call = Callable[[], object]
Point = tuple[int, int, int]


def round_blocks(a: torch.Tensor, block: int) -> tuple[torch.Tensor, ...]:
    """q int8 [G, M, block], scale, offset and sum of each block, float32 [M, G]."""
    x = a.float().view(len(a), -1, block)
    low, high = x.amin(-1), x.amax(-1)
    scale = ((high - low) / 255).clamp(min=torch.finfo(torch.float32).tiny)
    offset = high - 127 * scale
    q = ((x - offset[..., None]) / scale[..., None]).round().clamp(-128, 127).to(torch.int8)
    total = scale * q.sum(-1, dtype=torch.float32) + block * offset
    return q.transpose(0, 1).contiguous(), scale, offset, total


@dataclass
class Weight:
    """One copy: int8 [N, K], and what the loop needs, made when it is first asked for."""

    q: torch.Tensor
    scales: torch.Tensor  # [G, N]
    offsets: torch.Tensor
    block: int

    @cached_property
    def blocks(self) -> list[torch.Tensor]:
        return [part.contiguous().t() for part in self.q.split(self.block, dim=1)]

    @cached_property
    def cross(self) -> torch.Tensor:
        """[2 G, N]: multiplied by the sums and the offsets of the rows."""
        sums = torch.stack([part.sum(0, dtype=torch.int32) for part in self.blocks])
        return torch.cat((self.offsets.float(), self.scales.float() * sums))

    @cached_property
    def wide(self) -> list[torch.Tensor]:
        return list(self.scales.float())

    def loop(self, rows: tuple[torch.Tensor, ...], m: int) -> torch.Tensor:
        q, scale, offset, total = rows
        out = torch.cat((total, offset), dim=1) @ self.cross
        for i, part in enumerate(self.blocks):
            products = torch._int_mm(q[i], part)
            out.addcmul_(products * scale[:, i : i + 1], self.wide[i])
        return out[:m].half()


class Operands:
    """Random operands of one (N, K); enough copies of the weight that no cache holds them."""

    def __init__(self, n: int, k: int, block: int) -> None:
        self.n, self.k, self.block = n, k, block
        half = {"device": "cuda", "dtype": torch.float16}
        q = torch.randint(-128, 128, (n, k), device="cuda", dtype=torch.int8)
        scales = torch.rand(k // block, n, **half) * 0.01
        offsets = torch.randn(k // block, n, **half) * 0.1
        self.weights = [
            Weight(torch.roll(q, i, 0), scales, offsets, block) for i in range(copies_for(n * k))
        ]
        self.dense = [torch.randn(n, k, **half) for _ in range(copies_for(2 * n * k))]

    def configs(self, m: int) -> list[str]:
        ask = torch.ops.mixed_gemm._plan_block_quant_gemm
        answer = json.loads(ask(m, self.n, self.k, self.block, device_string("cuda")))
        return [candidate["config"] for candidate in answer["candidates"]]

    def calls(self, m: int, configs: list[str]) -> dict[str, list[Call]]:
        a = torch.randn(m, self.k, device="cuda", dtype=torch.float16)
        padded = torch.cat((a, a.new_zeros(max(0, LEAST_ROWS - m), self.k)))
        rows = round_blocks(padded, self.block)
        loops = self.weights[:MOST_LOOPS]

        def whole(w: Weight) -> torch.Tensor:
            return w.loop(round_blocks(padded, self.block), m)

        found: dict[str, list[Call]] = {
            LOOP: [partial(whole, w) for w in loops],
            PRODUCTS: [partial(w.loop, rows, m) for w in loops],
            CUBLAS: [partial(torch.nn.functional.linear, a, w) for w in self.dense],
        }
        op = torch.ops.mixed_gemm._block_quant_gemm_config
        for config in configs:
            found[config] = [
                partial(op, a, w.q.t(), w.scales, w.offsets, block_size=self.block, config=config)
                for w in self.weights
            ]
        return found


def rows_of(
    point: Point, block: int, selected: str, times: dict[str, Timing], ceilings: dict[str, float]
) -> list[Row]:
    n, k, m = point
    bytes_ = n * k + 4 * n * k // block + 2 * m * (k + n)
    roofline = max(
        bytes_ / ceilings["read_gb_per_s"] / 1e3, 2e-6 * m * n * k / ceilings["dense_int8_tops"]
    )
    return [
        {
            "op": name if name in (LOOP, PRODUCTS, CUBLAS) else OURS,
            "kernel": name,
            "selected": name == selected,
            "dtype": "float16",
            "bits": 8,
            "block_size": block,
            "N": n,
            "K": k,
            "M": m,
            "us": round(t.us, 2),
            "us_min": round(t.us_min, 2),
            "us_max": round(t.us_max, 2),
            "roofline_us": round(roofline, 2),
        }
        for name, t in times.items()
    ]


def ratios(rows: list[Row]) -> dict[str, list[float]]:
    """Theirs over ours, point by point; "choice": ours over the best of our candidates."""
    points: dict[Point, list[Row]] = {}
    for row in rows:
        points.setdefault((row["N"], row["K"], row["M"]), []).append(row)
    found: dict[str, list[float]] = {LOOP: [], PRODUCTS: [], CUBLAS: [], "choice": []}
    for of_point in points.values():
        ours = next(row["us"] for row in of_point if row["selected"])
        for row in of_point:
            if row["op"] != OURS:
                found[row["op"]].append(row["us"] / ours)
        found["choice"].append(ours / min(row["us"] for row in of_point if row["op"] == OURS))
    return found


def summary(rows: list[Row]) -> str:
    lines = ["        times faster than: geometric mean (least)"]
    for name, values in ratios(rows).items():
        if name == "choice":
            lines.append(f"choice over the best: {max(values):.2f} at worst")
        else:
            lines.append(f"{name:>24} {statistics.geometric_mean(values):8.2f} ({min(values):.2f})")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--shapes", help="N:K,N:K instead")
    parser.add_argument("--m", help="M,M instead")
    parser.add_argument("--block-size", type=int, default=128)
    parser.add_argument("--candidates", type=int, default=6, help="predicted-best ones to time")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--commit", help="for meta, where there is no git")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    shapes = (
        [tuple(map(int, s.split(":"))) for s in args.shapes.split(",")] if args.shapes else SHAPES
    )
    ms = tuple(map(int, args.m.split(","))) if args.m else MS
    ceilings = {**measured_ceilings(), "dense_int8_tops": int8_ceiling()}
    about = about_run(ceilings, args.commit)
    print(f"{about['gpu']}: {ceilings}")
    rows: list[Row] = []
    for n, k in shapes:
        operands = Operands(n, k, args.block_size)
        for m in ms:
            graph = graphs_of_a_point()
            configs = operands.configs(m)[: args.candidates]
            graphs = {name: graph(c) for name, c in operands.calls(m, configs).items()}
            times = time_interleaved(graphs, args.rounds)
            new = rows_of((n, k, m), args.block_size, configs[0], times, ceilings)
            rows += new
            if args.out:
                save(args.out, about, rows)
            best = min(configs, key=lambda name: times[name].us)
            us: dict[str, Any] = {name: t.us for name, t in times.items()}
            print(
                f"{n:6} {k:6} {m:5}: {us[configs[0]]:8.2f} us {configs[0]}, best {us[best]:8.2f} "
                f"{best}, loop {us[LOOP]:9.2f}, its products {us[PRODUCTS]:9.2f}, cuBLAS fp16 "
                f"{us[CUBLAS]:8.2f}, roofline {new[0]['roofline_us']:7.2f}",
                flush=True,
            )
            del graphs
        del operands
    print(summary(rows))


if __name__ == "__main__":
    main()
