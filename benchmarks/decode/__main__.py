"""Times whole steps of a decoder with random weights, and where a step's time goes.

    python -m benchmarks decode --out FILE.json [--shape llama_70b --layers 20] [--glue compiled]

A step is one replay of a CUDA graph of a plain loop in torch (on the CPU, a call). Its parts, the
linear layers, attention, the functions between them and the head, are timed in graphs of their own,
in turns with the step. "rest" is the time of the step less their sum, below 0 where parts overlap
in a step. A weight's name is "dense" or a scheme of mixed_gemm. The file is complete after each
row.

With --loop transformers a step is a LlamaForCausalLM's with a static cache, compiled to one graph,
on a GPU with mode="reduce-overhead": quantized by quantize_, with --products joint fused by fuse_.
It decodes, one model behind the other, each by the host's clock; logits are compared with those of
the eager model first. The first weights are timed once more at the end, which tells how much the
machine changes meanwhile.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from mixed_gemm.selection.timing import time_interleaved, timers_of

from .. import ceilings
from ..about import about_run
from . import compiled, loops
from .model import DENSE, Decoder, Glue
from .parts import calls
from .shape import PRODUCTS, SHAPES, Shape

GLUES = {"eager": Glue, "compiled": Glue.compiled}
PLAIN, TRANSFORMERS = LOOPS = ("plain", "transformers")


@torch.no_grad()
def row(model: Decoder, batch: int, tokens: int, first: int, rounds: int) -> dict[str, Any]:
    """Microseconds of a step of ``tokens`` of each sequence behind ``first``, and of its parts."""
    model.allocate(batch, first + tokens)
    timed = calls(model, batch, tokens, first)
    device = model.before_head.device
    found = time_interleaved(timers_of({name: [x] for name, x in timed.items()}, device), rounds)
    step = found.pop("step")
    parts = {name: round(timing.us, 1) for name, timing in found.items()}
    return {
        "batch": batch, "tokens": tokens, "context": first, "us": round(step.us, 1),
        "us_min": round(step.us_min, 1), "us_max": round(step.us_max, 1), **parts,
        "rest": round(step.us - sum(parts.values()), 1), "weight_bytes": model.weight_bytes(),
        "cache_bytes": model.cache_bytes(batch, first + tokens),
    }  # fmt: skip


def save(path: Path, meta: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Replace the file in one step."""
    partial = path.with_name(path.name + ".partial")
    lines = ",\n".join(map(json.dumps, rows))
    partial.write_text(f'{{\n"meta": {json.dumps(meta)},\n"rows": [\n{lines}\n]\n}}\n')
    partial.replace(path)


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m benchmarks decode",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--shape", choices=SHAPES, default="llama_8b")
    parser.add_argument("--layers", type=int, help="fewer than the shape has, to fit")
    parser.add_argument("--weights", nargs="+", default=[DENSE, "w4a16", "w8a16", "w8a8", "fp8"])
    parser.add_argument("--head", nargs="+", default=[DENSE], help="weights of the output head")
    parser.add_argument(
        "--products", choices=PRODUCTS, nargs="+", default=["apart"],
        help="joint: one for q, k and v, and one for gate and up",
    )  # fmt: skip
    parser.add_argument("--glue", choices=GLUES, nargs="+", default=["eager"])
    parser.add_argument("--loop", choices=LOOPS, nargs="+", default=[PLAIN])
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 4, 16, 64], help="of decoding")
    parser.add_argument("--context", type=int, default=1024, help="tokens before the decoded one")
    parser.add_argument("--prefill", type=int, nargs="*", default=[2048, 8192])
    parser.add_argument("--device", type=torch.device, default=torch.device("cuda"))
    parser.add_argument("--dtype", choices=("float16", "bfloat16", "float32"), default="float16")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--commit", help="where there is no git to ask")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None, shapes: dict[str, Shape] = SHAPES) -> None:
    given = arguments(argv)
    shape = shapes[given.shape]
    if given.layers:
        shape = dataclasses.replace(shape, layers=given.layers)
    meta = about_run(given.device, ceilings.measured(given.device), given.commit)
    meta |= {"shape": given.shape, **dataclasses.asdict(shape), "dtype": given.dtype}
    if TRANSFORMERS in given.loop:
        meta["transformers"] = metadata.version("transformers")
    rows: list[dict[str, Any]] = []
    found: Iterator[dict[str, Any]] = itertools.chain.from_iterable(
        {PLAIN: plain_rows, TRANSFORMERS: transformers_rows}[x](given, shape) for x in given.loop
    )
    for each in found:
        rows.append(each)
        print(each, flush=True)
        save(given.out, meta, rows)


def plain_rows(given: argparse.Namespace, shape: Shape) -> Iterator[dict[str, Any]]:
    """Measure each model of the plain loop, at each step."""
    steps = [(batch, 1, given.context) for batch in given.batch]
    steps += [(1, tokens, 0) for tokens in given.prefill]
    models = itertools.product(given.weights, given.head, given.products, given.glue)
    for weights, head, products, glue in models:
        torch.manual_seed(0)
        dtype = getattr(torch, given.dtype)
        with torch.no_grad():
            model = Decoder(shape, weights, given.device, dtype, GLUES[glue](), head, products)
        named = {"weights": weights, "head_weights": head, "products": products, "glue": glue}
        for step in steps:
            yield {"loop": PLAIN, **named, **row(model, *step, given.rounds)}
        del model


def transformers_rows(given: argparse.Namespace, shape: Shape) -> Iterator[dict[str, Any]]:
    """Measure each model that transformers runs and torch compiles, the first one twice."""
    asked = list(itertools.product(given.weights, given.head, given.products))
    # There is nothing to fuse where all is dense.
    models = [x for x in asked if x[0] != DENSE or x[2] == "apart"]
    repeated = [False] * len(models) + [True]
    for (weights, head, products), again in zip([*models, *models[:1]], repeated, strict=True):
        torch.manual_seed(0)
        dtype = getattr(torch, given.dtype)
        model = compiled.decoder(shape, weights, given.device, dtype, head, products)
        named = {"weights": weights, "head_weights": head, "products": products}
        for batch in given.batch:
            measured = loops.row(model, shape, batch, given.context, given.rounds)
            yield {"loop": TRANSFORMERS, "repeat": again, **named, **measured}
        del model
        loops.give_back(given.device)


if __name__ == "__main__":
    main()
