"""Milliseconds a token of a decoder that transformers compiles: dense, quantized, and quantized
with the parts of each weight as buffers of the module, the least that a compiled graph can cost.

    python -m benchmarks.compiled_model --out FILE.json [--layers 8 32] [--schemes w4a16 w8a8 ...]

The decoder has the shape of Llama-3.1-8B and random weights, a static cache of 512 tokens, one
sequence, and runs one token at a time under torch.compile(mode="reduce-overhead"). Each figure is
the median over the tokens after the first twenty, the host's time included. A file that is there
gets the rows of another run added, so that two commits stand side by side.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from types import MethodType
from typing import Any

import torch
import transformers

import mixed_gemm

from .about import about_run

TOKENS, WARM_UP, CACHE = 80, 20, 512
# The sizes of Llama-3.1-8B but for the vocabulary: 32,000 keeps the output head, which stays dense,
# small.
SHAPE = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
}
GROUP = 128
PARTS = "w4a16, parts as buffers"


def _op_on_buffers(module: Any, x: torch.Tensor) -> Any:
    op = torch.ops.mixed_gemm.fpA_intB_gemm
    return op(x, module.part0, module.part1, None, None, None, bits=4, group_size=GROUP)


def with_buffers(model: torch.nn.Module) -> None:
    """Replace every quantized layer by the op on two buffers, without its weight."""
    for module in model.modules():
        if isinstance(module, mixed_gemm.Linear):
            parts = module.weight.tensors()
            del module._parameters["weight"]
            for i, name in enumerate(("b_packed", "scales")):
                module.register_buffer(f"part{i}", parts[name], persistent=False)
            module.forward = MethodType(_op_on_buffers, module)  # type: ignore[method-assign]


def decoder(layers: int, weights: str, device: torch.device) -> Any:
    """Make a decoder in bfloat16.

    Args:
        layers: of the decoder. weights: "dense", ``PARTS`` or a scheme by name.
    """
    torch.manual_seed(0)
    config = transformers.LlamaConfig(num_hidden_layers=layers, **SHAPE)
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model = model.eval().requires_grad_(False)
    if weights != "dense":
        scheme = "w4a16" if weights == PARTS else weights
        group = GROUP if scheme.startswith("w4") else None
        mixed_gemm.quantize_(model, scheme, group_size=group, progress=False)
    if weights == PARTS:
        with_buffers(model)
    return model


@torch.no_grad()
def ms_a_token(model: Any, compiled: bool, device: torch.device) -> dict[str, float]:
    """Return the median and the least time of a token."""
    torch._dynamo.reset()
    cache = transformers.StaticCache(config=model.config, max_cache_len=CACHE)
    run: Any = model.forward
    if compiled:
        run = torch.compile(model.forward, mode="reduce-overhead", dynamic=False)
    vocabulary = model.config.vocab_size
    prompt = torch.randint(vocabulary, (1, 64), device=device)
    options = {"past_key_values": cache, "use_cache": True}
    ids = model(prompt, **options).logits[:, -1:].argmax(-1)
    times = []
    for _ in range(TOKENS):
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        torch.accelerator.synchronize()
        begun = time.perf_counter()
        ids = run(ids, **options).logits[:, -1:].argmax(-1)
        torch.accelerator.synchronize()
        times.append((time.perf_counter() - begun) * 1e3)
    kept = times[WARM_UP:]
    return {"ms": round(statistics.median(kept), 4), "ms_min": round(min(kept), 4)}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--layers", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--schemes", nargs="*", default=["w4a16"])
    parser.add_argument("--eager", action="store_true", help="also without torch.compile")
    parser.add_argument("--commit", help="where there is no git to ask")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(argv)
    device = torch.device("cuda")
    rows = []
    kinds = ["dense", *given.schemes, *([PARTS] if "w4a16" in given.schemes else [])]
    for layers in given.layers:
        for weights in kinds:
            model = decoder(layers, weights, device)
            for compiled in (True, False) if given.eager else (True,):
                row = {"layers": layers, "weights": weights, "compiled": compiled}
                rows.append(row | ms_a_token(model, compiled, device))
                print(rows[-1], flush=True)
            del model
            torch.cuda.empty_cache()
    runs = json.loads(given.out.read_text())["runs"] if given.out.exists() else []
    meta = about_run(device, {}, given.commit)
    meta |= {"transformers": transformers.__version__, "mixed_gemm": mixed_gemm.__version__}
    text = ",\n".join(
        json.dumps({"meta": run["meta"]})[:-1]
        + ',\n"rows": [\n'
        + ",\n".join(map(json.dumps, run["rows"]))
        + "\n]}"
        for run in [*runs, {"meta": meta, "rows": rows}]
    )
    given.out.write_text(f'{{"runs": [\n{text}\n]}}\n')


if __name__ == "__main__":
    main()
