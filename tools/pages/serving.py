"""The tables of docs/serving.md, from benchmarks/results/vllm_*.json, which the programs of
benchmarks/serving leave.
"""

from __future__ import annotations

from typing import Any

from . import serving_gpu
from .page import Page, parts
from .table import results, table, versions


def answers() -> str:
    """The questions of vLLM's own classes (``python -m benchmarks.serving.answers``)."""
    rows = ([x["asks"], x["of"], x["answer"]] for x in results("vllm_answers.json"))
    return f"""Asked with `MIXED_GEMM_VLLM=first`, by vLLM's descriptions of layers (K = N = 4096;
128 experts of 2048 x 768):

{table(["kernel", "asked", "answer"], rows)}"""


DTYPES = ("float16", "bfloat16", "float32")
MODELS = {"smollm2": "SmolLM2", "small": "a small Llama"}
DENSE = "dense"


def _by_row() -> dict[tuple[str, str], dict[str, dict[str, Any]]]:
    """The cells of tokens by (model, row) and dtype."""
    rows: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for x in results("vllm_tokens.json")["rows"]:
        rows.setdefault((x["model"], x["row"]), {})[x["dtype"]] = x
    return rows


def _same(found: list[int], cell: dict[str, Any]) -> str:
    """Tokens up to the first that differs, and the lead of the best token there."""
    same = [a == b for a, b in zip(found, cell["expected"], strict=True)]
    count = [*same, False].index(False)
    told = f"{count} of {cell['of']}"
    return told if count == cell["of"] else f"{told} ({cell['leads'][count]:.2f})"


def tokens() -> str:
    """Rows by model and name, columns by dtype."""
    found = results("vllm_tokens.json")

    def served(of: dict[str, dict[str, Any]]) -> str:
        return next((_same(x["server"], x) for x in of.values() if "server" in x), "")

    lines = (
        [row, MODELS[model], next(iter(of.values()))["kernel"] or "vLLM's own",
         *(_same(of[d]["engine"], of[d]) if d in of else "" for d in DTYPES), served(of)]
        for (model, row), of in _by_row().items()
    )  # fmt: skip
    cells = [x for x in found["rows"] if x["row"] != DENSE]
    whole = sum(x["engine"] == x["expected"] for x in cells)
    small = [x for x in cells if x["model"] == "small"]
    whole_small = sum(x["engine"] == x["expected"] for x in small)
    servers = [x for x in cells if "server" in x]
    as_engine = sum(x["server"] == x["engine"] for x in servers)
    same, calls = (sum(x[of] for x in cells) for of in ("same_bits", "calls"))
    told = "**all**" if same == calls else f"**{same}**"
    return f"""Tokens that are those of transformers, up to the first that differs, and in
brackets by how many logits transformers' best token led the second there. {whole} of
{len(cells)} runs of the engine give all of them; {as_engine} of {len(servers)} answers of the
server, which runs the first dtype of a row, are those of the engine. The prompt is the first of
several after which transformers' best token always leads by 0.1, where there is one. Prompts
longer than a step, prefix caching and chunked prefill are on (`python -m
benchmarks.serving.tokens --server`, {versions(found["versions"])}).

{table(["weights", "model", "run by", *DTYPES, "server"], lines)}

Where tokens differ, is it our layer? Of {calls} calls of linear layers in these runs, {told}
gave the bits that `mixed_gemm.Linear` gives for the same input. What differs lies between them,
where vLLM adds up in another order: norms, rotations, attention. With the small Llama
{whole_small} of {len(small)} runs give all tokens, activations in 8 bits included."""


def log() -> str:
    """The lines of the servers' logs that name what is ours, and for which weights."""
    said: dict[str, list[str]] = {}
    for x in results("vllm_tokens.json")["rows"]:
        for line in x.get("log", []):
            weights = x["row"].split(" ")[0] if "GPTQ file" not in line else x["row"]
            names = said.setdefault(line, [])
            names += [] if weights in names else [weights]
    lines = ([f"`{line}`", ", ".join(names)] for line, names in said.items())
    return table(["line of a server's log", "weights, as [below](#tokens)"], lines)


def choices() -> str:
    """A text that is given, token after token (benchmarks/serving/choices.py)."""

    def cell(x: dict[str, Any]) -> str:
        return (
            f"{x['same']}" if x["same"] == x["of"] else f"{x['same']} ({x['lead_where_not']:.2f})"
        )

    rows = {row: of for (model, row), of in _by_row().items() if model == "smollm2"}
    lines = (
        [row, *(cell(of[d]["choices"][by]) if d in of else ""
                for d in DTYPES for by in ("engine", "eager"))]
        for row, of in rows.items()
    )  # fmt: skip
    (count,) = {x["choices"]["engine"]["of"] for of in rows.values() for x in of.values()}
    head = (f"{d}, {by}" for d in DTYPES for by in ("vLLM", "eager"))

    def lost(names: list[str]) -> str:
        """The largest lead that vLLM lost, in each dtype."""
        found = (
            [rows[n][d]["choices"]["engine"]["lead_where_not"] for n in names if d in rows[n]]
            for d in DTYPES
        )
        return ", ".join(f"{max(leads):.2f}" for leads in found)

    as_they_are = [n for n in rows if n != DENSE and not n.startswith(("W8A8", "FP8"))]
    return f"""A token that falls otherwise changes all that follow. So a fairer question: after
each of {count} tokens of a text that is given, is the most probable next token that of
transformers? In brackets, the largest lead of the best token where it is not. Beside vLLM stands
transformers with `eager` attention in place of `sdpa`, two ways to compute the same, both its
own, around the same linear layers. Where that moves as many choices as vLLM does, it is rounding
between the layers that moves them. In bfloat16 logits above 16 are multiples of 0.125, so that
near ties are frequent, for the dense model too. Activations in 8 bits make more of rounding: a
last bit puts a value on the other side of a rounding step.

With activations as they are, the largest lead that vLLM lost is {lost(as_they_are)} logits in
{", ".join(DTYPES)}; of the dense model {lost([DENSE])}.

{table([f"of {count}", *head], lines)}"""


def speed() -> str:
    """Tokens a second, and the ratios that were wanted."""
    found = results("vllm_cpu.json")
    meta, batches = found["meta"], list(found["rows"][0]["tokens_per_second"])
    base = next(x for x in found["rows"] if x["name"] == "bf16")["tokens_per_second"]
    lines = (
        [x["name"], *(f"{x['tokens_per_second'][b] / base[b]:.2f}" for b in batches)]
        for x in found["rows"]
    )
    runs = [
        {(x["of"], x["to"], x["batch"]): f"{x['ratio']:.2f}" for x in run["ratios"]}
        for run in (found, *found.get("before", ()))
    ]
    wanted = (
        [f"{x['of']} of {x['to']}", f"{x['batch']}", f"{x['goal']:.2f}",
         *(run.get((x["of"], x["to"], x["batch"]), "") for run in runs)]
        for x in found["ratios"]
    )  # fmt: skip
    earlier = [f"a run before, {run['date']}" for run in found.get("before", ())]
    goals = table(["", "batch", "wanted", "this run", *earlier], wanted)
    note = f"\n\nTo be measured again: {meta['note']}." if meta.get("note") else ""
    return f"""Tokens a second as a ratio to dense bfloat16 in the same run: {meta["model"]} in
bfloat16, decoding, compiled as vLLM does by default, {meta["threads"]} threads of {meta["cpu"]}
({versions(meta["versions"])}; `python -m benchmarks.serving.speed`).

{table(["", *(f"batch {b}" for b in batches)], lines)}{note}

What was wanted, and what it is. Others share this host, so an hour later it is another machine:

{goals}

Leave `OMP_WAIT_POLICY` unset: threads that sleep between two layers cost more than the layers."""


def step() -> str:
    """Where a step goes (``python -m benchmarks.serving.step``)."""
    found = results("vllm_step.json")
    lines = (
        [name, batch, *(f"{x[part]:.1f}" for part in ("profiled", "linear", "rounding", "attention",
                                                      "lm_head")),
         f"{x['profiled'] - x['linear'] - x['rounding'] - x['attention'] - x['lm_head']:.1f}",
         *(f"{us:.0f}" for us in ((x["linear"] + x["rounding"]) * 1e3 / x["calls"],
                                  x["warm"], x["cold"]))]
        for name, of in found["rows"].items() for batch, x in of.items()
    )  # fmt: skip
    head = ["", "batch", "step, ms", "linear layers", "rounding", "attention", "output layer"]
    calls = ["rest", "a call, us", "alone, warm", "alone, cold"]
    return f"""Where a step goes, of its quietest quarter, with a profiler on (`python -m
benchmarks.serving.step`): milliseconds of the linear layers, of the op that rounds their
activations where it is one of its own, of vLLM's attention and cache, of the output layer, which
is not quantized, and of all else (norms, rotations, the scheduler); and microseconds of a call
of a linear layer in the step, and alone, with the weights of the other layers between two calls
of one (warm) and with caches emptied too (cold). The compiled model calls our ops and nothing
else of ours: views and casts around them are gone from it.

{table([*head, *calls], lines)}"""


def gpu() -> str:
    """vLLM's engine on an H100."""
    return serving_gpu.told(results("vllm_engine_h100.json"))


def h200() -> str:
    """The same on an H200."""
    return serving_gpu.told(results("vllm_engine_h200.json"))


_PARTS = {part.__name__: part for part in (log, answers, tokens, choices, speed, step, gpu, h200)}
PAGE = Page({"docs/serving.md": parts(**_PARTS)})
