"""Writes the tables of docs/serving.md from benchmarks/results/vllm_*.json, which the scripts of
benchmarks/serving leave.

python tools/write_serving.py          writes them
python tools/write_serving.py --check  exit status 1 if they would change
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from written import settle

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "serving.md"
RESULTS = ROOT / "benchmarks" / "results"


def _read(name: str) -> Any:
    return json.loads((RESULTS / f"vllm_{name}.json").read_text(encoding="utf-8"))


def _table(header: list[str], rows: Iterable[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _versions(found: dict[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in found.items())


def answers() -> str:
    """What vLLM's own classes ask (``python -m benchmarks.serving.answers``)."""
    rows = ([x["asks"], x["of"], x["answer"]] for x in _read("answers"))
    return f"""Asked with `MIXED_GEMM_VLLM=first`, by vLLM's descriptions of layers (K = N = 4096):

{_table(["kernel", "asked", "answer"], rows)}"""


def tokens() -> str:
    """Rows by model and name, columns by dtype."""
    found = _read("tokens")
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for x in found["rows"]:
        rows.setdefault((x["model"], x["row"]), {})[x["dtype"]] = x
    dtypes = ("float16", "bfloat16", "float32")

    def cell(x: dict[str, Any] | None) -> str:
        return "" if x is None else f"{x['equal']} of {x['of']}"

    def server(of: dict[str, Any]) -> str:
        (x, *_) = (x for x in of.values() if "server" in x) if _served(of) else (None,)
        if x is None:
            return ""
        same = [a == b for a, b in zip(x["server"], x["expected"], strict=True)]
        return f"{[*same, False].index(False)} of {x['of']}"

    names = {"smollm2": "SmolLM2", "small": "a small Llama"}
    lines = (
        [row, names[model], next(iter(of.values()))["kernel"], *(cell(of.get(d)) for d in dtypes),
         server(of)]
        for (model, row), of in rows.items()
    )  # fmt: skip
    return f"""Tokens that are those of transformers, up to the first that differs, by `python -m
benchmarks.serving.tokens` ({_versions(found["versions"])}). The engine is compared in three dtypes,
the server in the first; prompts longer than a step, prefix caching and chunked prefill are on.

{_table(["weights", "model", "run by", *dtypes, "server"], lines)}"""


def bits() -> str:
    """Each layer by itself (``python -m benchmarks.serving.bits``)."""
    found = _read("bits")
    rows = found["rows"]
    lines = (
        [x["row"], x["dtype"], f"{x['same_bits']} of {x['calls']}",
         *(f"{x[by]} of {x['of']}" for by in ("engine", "eager")),
         f"{x['eager_logits']:.2f}", f"{x['lead']:.2f}"]
        for x in rows
    )  # fmt: skip
    same = sum(x["same_bits"] for x in rows)
    calls = sum(x["calls"] for x in rows)
    told = "**all**" if same == calls else f"**{same}**"
    head = ["weights", "dtype", "calls with the same bits", "tokens of vLLM", "tokens of eager"]
    table = _table([*head, "logits moved by eager", "lead of the best token"], lines)
    return f"""Where tokens differ, is it our layer? Of {calls} calls in the engine, {told} gave the
bits that `mixed_gemm.Linear` gives for the same input. What differs lies between them, where vLLM
adds up in another order: norms, rotations, attention. Rounding activations to 8 bits makes much of
it: transformers with `eager` attention instead of `sdpa`, both its own, mostly moves logits of W8A8
by more than the best token leads, and parts from itself too (SmolLM2, `python -m
benchmarks.serving.bits`, {_versions(found["versions"])}).

{table}"""


def _served(of: dict[str, Any]) -> bool:
    return any("server" in x for x in of.values())


def speed() -> str:
    """Tokens a second, and the ratios that were wanted."""
    found = _read("cpu")
    meta, batches = found["meta"], list(found["rows"][0]["tokens_per_second"])
    base = next(x for x in found["rows"] if x["name"] == "bf16")["tokens_per_second"]
    lines = (
        [x["name"], *(f"{x['tokens_per_second'][b] / base[b]:.2f}" for b in batches)]
        for x in found["rows"]
    )
    missed = [
        f"{x['of']} of {x['to']} at batch {x['batch']}: {x['ratio']:.2f}, wanted {x['goal']:.2f}"
        for x in found["ratios"]
        if x["ratio"] < x["goal"]
    ]
    told = "\n".join(f"- {x}" for x in missed)
    note = f"\n\nTo be measured again: {meta['note']}." if meta.get("note") else ""
    short = f"\n\nShort of what we want:\n\n{told}" if missed else ""
    return f"""Tokens a second as a ratio to dense bfloat16 in the same run: {meta["model"]} in
bfloat16, decoding, compiled as vLLM does by default, {meta["threads"]} threads of {meta["cpu"]}
({_versions(meta["versions"])}; `python -m benchmarks.serving.speed`).

{_table(["", *(f"batch {b}" for b in batches)], lines)}{note}{short}

Leave `OMP_WAIT_POLICY` unset: threads that sleep between two layers cost more than the layers."""


PARTS = {"answers": answers, "tokens": tokens, "bits": bits, "speed": speed}


def page() -> str:
    text = PAGE.read_text(encoding="utf-8")
    for name, part in PARTS.items():
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        head, rest = text.split(begin)
        _, tail = rest.split(end)
        text = f"{head}{begin}\n\n{part()}\n\n{end}{tail}"
    return text


if __name__ == "__main__":
    sys.exit(settle(PAGE, page(), sys.argv[1:]))
