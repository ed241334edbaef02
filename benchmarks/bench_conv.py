"""qconv2d on the layers of ResNet-50 against the library's fp16 convolution, in one run.

    python benchmarks/bench_conv.py --out benchmarks/results/conv_h200.json

For each layer and batch: our op, every candidate that is predicted to be near the best, the fp16
convolution of torch (channels-last, cudnn.benchmark), and "dequantize, then that convolution". All
by graph replay over several copies of the weight, interleaved. Prints a line for each, then the
geometric means of the ratios.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from about import about_run
from results import save
from timing import Graph, copies_for, measured_ceilings, time_interleaved

import mixed_gemm

ops = torch.ops.mixed_gemm
BITS, BLOCK = 4, 64
# (Ci, image side, Co, kernel side, stride, how many of them): every convolution of ResNet-50.
LAYERS = (
    (3, 224, 64, 7, 2, 1),
    (64, 56, 64, 1, 1, 1),
    (64, 56, 64, 3, 1, 3),
    (64, 56, 256, 1, 1, 4),
    (256, 56, 64, 1, 1, 2),
    (256, 56, 128, 1, 1, 1),
    (128, 56, 128, 3, 2, 1),
    (128, 28, 512, 1, 1, 4),
    (256, 56, 512, 1, 2, 1),
    (512, 28, 128, 1, 1, 3),
    (128, 28, 128, 3, 1, 3),
    (512, 28, 256, 1, 1, 1),
    (256, 28, 256, 3, 2, 1),
    (256, 14, 1024, 1, 1, 6),
    (512, 28, 1024, 1, 2, 1),
    (1024, 14, 256, 1, 1, 5),
    (256, 14, 256, 3, 1, 5),
    (1024, 14, 512, 1, 1, 1),
    (512, 14, 512, 3, 2, 1),
    (512, 7, 2048, 1, 1, 3),
    (1024, 14, 2048, 1, 2, 1),
    (2048, 7, 512, 1, 1, 2),
    (512, 7, 512, 3, 1, 2),
)
CUDNN, DENSE, OURS = "torch.nn.functional.conv2d", "dequantize_conv", "qconv2d"


def calls_of(
    layer: tuple[int, ...], batch: int, most: int, offsets: bool
) -> tuple[dict[str, list[Callable[[], object]]], list[str]]:
    """Kernel -> its calls, one for each copy of the weight; and the candidates by prediction."""
    ci, side, co, kernel, stride, _ = layer
    half = {"device": "cuda", "dtype": torch.float16}
    x = torch.randn(batch, ci, side, side, **half).contiguous(memory_format=torch.channels_last)
    block = min(BLOCK, ci) if ci % 16 == 0 else -1
    blocks = 1 if block == -1 else -(-ci // block)
    q = torch.randint(-8, 8, (co, ci, kernel, kernel), device="cuda", dtype=torch.int8)
    packed = mixed_gemm.pack_conv_weights(q, BITS)
    padding = kernel // 2
    options: dict[str, Any] = {
        "bits": BITS,
        "block_size": block,
        "kernel_size": [kernel, kernel],
        "stride": [stride, stride],
        "padding": [padding, padding],
    }
    copies = [
        (
            torch.roll(packed, i, 0),
            torch.rand(blocks, co, **half),
            torch.randn(blocks, co, **half) if offsets else None,
        )
        for i in range(copies_for(packed.numel()))
    ]
    dense = [
        torch.randn(co, ci, kernel, kernel, **half).contiguous(memory_format=torch.channels_last)
        for _ in range(copies_for(2 * q.numel()))
    ]
    names = ops._qconv2d_configs(x, *copies[0], **options).split()
    implicit = [name for name in names if name != DENSE][:most]
    calls: dict[str, list[Callable[[], object]]] = {
        CUDNN: [partial(torch.nn.functional.conv2d, x, w, None, stride, padding) for w in dense],
        OURS: [partial(ops.qconv2d, x, *copy, **options) for copy in copies],
    }
    for name in [*implicit, DENSE]:
        calls[name] = [
            partial(ops._qconv2d_config, x, *copy, **options, config=name) for copy in copies
        ]
    return calls, names


def measure(
    layer: tuple[int, ...], batch: int, most: int, rounds: int, offsets: bool
) -> list[dict[str, Any]]:
    calls, names = calls_of(layer, batch, most, offsets)
    for kernel_calls in calls.values():  # cudnn.benchmark searches here, not in a capture
        kernel_calls[0]()
    graphs = {name: Graph(kernel_calls) for name, kernel_calls in calls.items()}
    times = time_interleaved(graphs, rounds)
    ci, side, co, kernel, stride, count = layer
    return [
        {
            "layer": f"{ci}x{side}x{side} -> {co}, {kernel}x{kernel}, stride {stride}",
            "count": count,
            "batch": batch,
            "offsets": offsets,
            "kernel": name,
            "us": round(t.us, 3),
            "us_min": round(t.us_min, 3),
            "us_max": round(t.us_max, 3),
            "rank": names.index(name) if name in names else None,
        }
        for name, t in times.items()
    ]


def ratios(rows: list[dict[str, Any]], batch: int) -> dict[str, list[float]]:
    """Our speed over the other's, layer by layer, and how far the choice is from the best."""
    by_layer: dict[tuple[str, bool], dict[str, float]] = {}
    for row in rows:
        if row["batch"] == batch:
            by_layer.setdefault((row["layer"], row["offsets"]), {})[row["kernel"]] = row["us"]
    found: dict[str, list[float]] = {"cudnn": [], "dense": [], "best": []}
    for us in by_layer.values():
        best = min(t for name, t in us.items() if name != CUDNN)
        found["cudnn"].append(us[CUDNN] / us[OURS])
        found["dense"].append(us[DENSE] / us[OURS])
        found["best"].append(us[OURS] / best)
    return found


def summary(rows: list[dict[str, Any]]) -> str:
    lines = ["batch  x cuDNN fp16 (least)  x dequantize + cuDNN (least)  choice / best (worst)"]
    for batch in sorted({row["batch"] for row in rows}):
        r = ratios(rows, batch)
        mean = {name: statistics.geometric_mean(values) for name, values in r.items()}
        lines.append(
            f"{batch:5}  {mean['cudnn']:11.2f} ({min(r['cudnn']):5.2f})  "
            f"{mean['dense']:20.2f} ({min(r['dense']):5.2f})  "
            f"{mean['best']:13.2f} ({max(r['best']):5.2f})"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--batches", default="1,8,32")
    parser.add_argument("--candidates", type=int, default=6, help="predicted best ones to time")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--offsets", action="store_true", help="w = q * scale + offset")
    parser.add_argument("--commit", help="for meta, where there is no git")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    rows: list[dict[str, Any]] = []
    for batch in map(int, args.batches.split(",")):
        for layer in LAYERS:
            here = measure(layer, batch, args.candidates, args.rounds, args.offsets)
            rows += here
            us = {row["kernel"]: row["us"] for row in here}
            best = min((name for name in us if name != CUDNN), key=lambda name: us[name])
            print(
                f"{here[0]['layer']:34} batch {batch:2}: {us[OURS]:8.2f} us, cuDNN "
                f"{us[CUDNN]:8.2f}, dequantize + cuDNN {us[DENSE]:8.2f}, best {us[best]:8.2f} "
                f"{best}",
                flush=True,
            )
    print(summary(rows))
    if args.out:
        save(args.out, about_run(measured_ceilings(), args.commit), rows)


if __name__ == "__main__":
    main()
