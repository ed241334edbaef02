"""The tables of docs/serving.md from the results of vLLM's engine on a GPU, which serving.py puts
into the page.
"""

from __future__ import annotations

import textwrap
from typing import Any

from benchmarks.serving.gpu.ratios import Line, ratios, step_ms
from benchmarks.serving.rows import GPU_ROWS

from .table import table

NAMES = {"vllm": "vLLM's own", "Marlin": "vLLM's Marlin", "ours": "ours"}
ABSENT = "Not measured yet."
FIRST_TOKEN = ("first_token_ms_p50", "first_token_ms_p99")
FAR = 2  # times as far from float32 as on one GPU: wrong


def filled(text: str) -> str:
    """Wrap a text into lines of 100 characters."""
    return textwrap.fill(" ".join(text.split()), 100, break_on_hyphens=False)


def told(found: dict[str, Any]) -> str:
    """Write all sections that are there.

    Args:
        found: the results file; empty where there is none.
    """
    parts = []
    for name, section in found.items():
        begin, _, several = name.partition(" on ")
        program = begin.partition(" of ")[0]
        parts.append({"check": check, "step": step, "load": load}[program](section))
        if program == "check" and several:
            parts.append(beside_one(section["rows"], found["check"]["rows"]))
    return "\n\n".join(parts) or ABSENT


def _where(meta: dict[str, Any]) -> str:
    versions = ", ".join(f"{k} {v}" for k, v in meta["versions"].items() if k != "transformers")
    clock = meta["clocks"].get("clocks.max.sm", "")
    ranks = meta["tensor_parallel"]
    gpus = meta["gpu"] if ranks == 1 else f"{ranks} x {meta['gpu']}"
    at = f" (at most {clock})" if clock else ""
    note = f", {meta['note']}" if meta.get("note") else ""
    return f"{gpus}{at}, driver {meta['driver']}, {versions}, {meta['date']}{note}"


# --- right ---------------------------------------------------------------------------------------


def check(section: dict[str, Any]) -> str:
    """Mean distances from float32, vLLM's own and ours, by kind of file."""
    lines = section["rows"]
    rows = list(dict.fromkeys(x["row"] for x in lines))
    columns = list(dict.fromkeys((x["dtype"], x["mode"]) for x in lines))
    columns.sort(key=lambda x: (x[0] != "bfloat16", x[1] != "eager"))
    by = {(x["row"], x["dtype"], x["mode"], x["place"]): x for x in lines}

    def cell(row: str, column: tuple[str, str]) -> str:
        pair = [_mean(by.get((row, *column, place))) for place in ("off", "first")]
        return "; ".join(x or "not measured" for x in pair) if any(pair) else ""

    verdicts = section["verdicts"]
    compared = [x for x in verdicts if x["ratio"] is not None]
    near = [x for x in compared if not x["wrong"]]
    worst = max((x["ratio"] for x in compared), default=0.0)
    count = f"{len(near)} of {len(compared)}"
    instead = [x for x in verdicts if x["beside"].startswith(tuple(rows))]
    head = [f"{dtype}, {mode}" for dtype, mode in columns]
    body = ([x, _held(x, lines), *(cell(x, c) for c in columns)] for x in rows)
    text = f"""How far log-probabilities of prompts lie from those of the same file in float32 on
the CPU, on average: with vLLM's kernels; with ours before them. A random Llama of two layers
(K = 1024 and 2816){_experts(rows)}. {count} lines of ours lie no further than 1.2 times as far
as vLLM's own, in prompts and in decoded tokens, and the worst at {worst:.2f}
({_where(section["meta"])};
`python -m benchmarks.serving.gpu_check`)."""
    for x in {x["row"]: x for x in instead}.values():
        other = x["beside"].partition(" (")[0]
        text += f" vLLM's own do not read {x['row']}: {other}, with the same codes, stands in."
    for x in (x for x in verdicts if x["ratio"] is None):
        text += (
            f" Not compared: {x['row']}, {x['dtype']}, {x['mode']} ({x['beside'] or x['wrong']})."
        )
    return f"{filled(text)}\n\n{table(['file', 'run by', *head], body)}"


def _experts(rows: list[str]) -> str:
    mixtures = {x.name for x in GPU_ROWS if x.mixture}
    return ", mixtures with 8 experts (K = 1024 and 512)" if mixtures & set(rows) else ""


def beside_one(lines: list[Line], one: list[Line]) -> str:
    """Tell how much further ours lie from float32 on several GPUs than on one."""
    keys = ("row", "dtype", "mode")
    base = {tuple(x[k] for k in keys): x for x in one if x["place"] == "first"}
    far = {
        x["row"]: x["prompt"]["mean"] / base[key]["prompt"]["mean"]
        for x in lines
        if x["place"] == "first" and "prompt" in x
        and "prompt" in base.get(key := tuple(x[k] for k in keys), {})
    }  # fmt: skip
    sound = {row: x for row, x in far.items() if x < FAR}
    text = f"""Beside one GPU, ours lie {min(sound.values()):.2f} to {max(sound.values()):.2f}
times as far on {lines[0]["ranks"]}."""
    for row, ratio in far.items():
        if row not in sound:
            text += f""" **{row} is wrong there**, {ratio:.0f} times as far, and as far with vLLM's
own kernels alone: layers that are cut along K run on vLLM's Marlin, since their groups are not
whole on a GPU."""
    return filled(text)


def _mean(line: Line | None) -> str:
    if line is None:
        return ""
    return f"{line['prompt']['mean']:.4f}" if "prompt" in line else "does not run"


def _held(row: str, lines: list[Line]) -> str:
    """Classes of ours among those that the layers hold, and of vLLM's kernels beside them."""
    held = {
        name
        for x in lines
        if (x["row"], x["place"]) == (row, "first")
        for name in x.get("kernels", ())
        if name.startswith("MixedGemm") or name.endswith("Kernel")
    }
    return ", ".join(f"`{x}`" for x in sorted(held)) or "vLLM's own"


# --- fast ----------------------------------------------------------------------------------------


def step(section: dict[str, Any]) -> str:
    """Milliseconds of a decode step by batch, and ours over the faster of vLLM's own."""
    meta, parts = section["meta"], []
    lines = [x for x in section["rows"] if "error" not in x]
    for dtype in dict.fromkeys(x["dtype"] for x in lines):
        some = _by_weights([x for x in lines if x["dtype"] == dtype])
        batches = sorted({b for x in some for b in step_ms(x)})
        found = ratios(some, "weights")
        rows = []
        for x in some:
            ours = found.get(x["weights"], {}) if x["kernels"] == "ours" else {}
            cells = (_time(x["batches"].get(str(b)), ours.get(b)) for b in batches)
            prompt = f"{x['long_prompt']['ms']:.1f}" if "long_prompt" in x else ""
            rows.append([x["weights"], NAMES[x["kernels"]], *cells, prompt])
        head = ["weights", "kernels", *(f"batch {b}" for b in batches)]
        whole = table([*head, f"{meta['long_prompt']} tokens read"], rows)
        parts += [
            f"Activations in {dtype}:\n\n{whole}",
            *_behind(_slower_steps(some, found, meta["long_prompt"])),
            *_notes(some),
            *_of_gpu(some, batches),
        ]
    text = f"""Milliseconds of a decode step with CUDA graphs, the median of {meta["samples"]} and
how far they lie apart (+-), in brackets ours over the faster of vLLM's own; and the reading of a
prompt. {meta["shape"]}, random weights,
{meta["prompt"]} tokens in, {meta["steps"]} decoded ({_where(meta)};
`python -m benchmarks.serving.gpu_step`)."""
    return "\n\n".join([filled(text), *parts])


def _by_weights(lines: list[Line]) -> list[Line]:
    """Lines of the same weights beside each other, vLLM's own first; engines end in any order."""
    weights, kernels = list(dict.fromkeys(x["weights"] for x in lines)), list(NAMES)
    return sorted(lines, key=lambda x: (weights.index(x["weights"]), kernels.index(x["kernels"])))


def _time(of: dict[str, Any] | None, ratio: float | None) -> str:
    if of is None:
        return ""
    beside = f" ({ratio:.2f})" if ratio is not None else ""
    return f"{of['step_ms']:.2f} +- {of['spread_ms']:.2f}{beside}"


def _slower_steps(lines: list[Line], found: dict[str, dict[int, float]], tokens: int) -> list[str]:
    """Where ours are slower than the faster of vLLM's own; in a step, and in reading a prompt."""
    slower = [
        f"{weights} at batch {batch} ({ratio:.2f})"
        for weights, of in found.items()
        for batch, ratio in of.items()
        if round(ratio, 2) > 1
    ]
    for weights in found:
        read = {x["kernels"]: x["long_prompt"]["ms"] for x in lines
                if x["weights"] == weights and "long_prompt" in x}  # fmt: skip
        ours = read.pop("ours", 0.0)
        if read and (ratio := ours / min(read.values())) > 1.005:
            slower.append(f"{weights} in {tokens} tokens read ({ratio:.2f})")
    return slower


def _behind(slower: list[str]) -> list[str]:
    return [filled(f"**Behind vLLM's own**: {', '.join(slower)}.")] if slower else []


def _notes(lines: list[Line]) -> list[str]:
    """Say of the lines that are not of the run that the text names how they were measured."""
    noted: dict[str, list[str]] = {}
    for x in lines:
        if x.get("note") and x["weights"] not in noted.setdefault(x["note"], []):
            noted[x["note"]].append(x["weights"])
    return [filled(f"{', '.join(names)}: {note}.") for note, names in noted.items()]


def _of_gpu(lines: list[Line], batches: list[int]) -> list[str]:
    """The table of the GPU's part of a step, where it was traced."""
    traced = [x for x in lines if any("gpu_us" in of for of in x["batches"].values())]
    if not traced:
        return []
    found = ratios(traced, "weights", "gpu_us")
    rows = []
    for x in traced:
        ours = found.get(x["weights"], {}) if x["kernels"] == "ours" else {}
        cells = (_worked(x["batches"].get(str(b), {}), ours.get(b)) for b in batches)
        rows.append([x["weights"], NAMES[x["kernels"]], *cells])
    text = """Milliseconds of a step in which the GPU runs a kernel, and behind the + those in which
    it waits for the host (a trace of torch's profiler; kernels that overlap count once):"""
    head = ["weights", "kernels", *(f"batch {b}" for b in batches)]
    return [f"{filled(text)}\n\n{table(head, rows)}"]


def _worked(of: dict[str, Any], ratio: float | None) -> str:
    if "gpu_us" not in of:
        return ""
    beside = f" ({ratio:.2f})" if ratio is not None else ""
    return f"{of['gpu_us'] / 1e3:.2f}{beside} + {max(0, of['idle_us']) / 1e3:.2f}"


def load(section: dict[str, Any]) -> str:
    """Write the table of a server under load."""
    meta = section["meta"]
    lines = [x for x in section["rows"] if "error" not in x]
    peers: dict[str, float] = {}
    for x in lines:
        if x["kernels"] != "ours":
            peers[x["weights"]] = max(x["requests_per_second"], peers.get(x["weights"], 0.0))

    def rate(x: Line) -> str:
        of, peer = x["requests_per_second"], peers.get(x["weights"])
        beside = f" ({of / peer:.2f})" if x["kernels"] == "ours" and peer else ""
        return f"{of:.1f} +- {x['spread']['requests_per_second']:.1f}{beside}"

    rows = (
        [x["weights"], NAMES[x["kernels"]], rate(x), f"{x['tokens_per_second']:.0f}",
         *(f"{x[of]:.0f} +- {x['spread'][of]:.0f}" for of in FIRST_TOKEN)]
        for x in lines
    )  # fmt: skip
    head = ["weights", "kernels", "requests/s", "tokens/s", "first token, ms, p50", "p99"]
    between = " to ".join(map(str, meta["prompt"]))
    new = " to ".join(map(str, meta["new"]))
    text = f"""vLLM's OpenAI server and {meta["clients"]} clients, each with one request after
another of {between} tokens for {new} new ones: the median of {meta["rounds"]} rounds of
{meta["requests"]} requests and how far they lie apart (+-), in brackets ours over the faster of
vLLM's own. {meta["shape"]}, random weights, activations in bfloat16 ({_where(meta)};
`python -m benchmarks.serving.gpu_load`)."""
    whole = f"{filled(text)}\n\n{table(head, rows)}"
    return "\n\n".join([whole, *_behind(_later_answers(lines)), *_notes(lines)])


def _later_answers(lines: list[Line]) -> list[str]:
    """Where a server with ours answers fewer requests, or later, than the better of vLLM's own."""
    behind = []
    for x in (x for x in lines if x["kernels"] == "ours"):
        peers = [p for p in lines if p["weights"] == x["weights"] and p["kernels"] != "ours"]
        for name, told, better in (
            ("requests_per_second", "requests/s", max),
            ("first_token_ms_p50", "first token at the median", min),
            ("first_token_ms_p99", "first token at p99", min),
        ):
            of = [p[name] for p in peers]
            ratio = x[name] / better(of) if of else 1.0
            if round(ratio, 2) != 1 and (ratio < 1) == (better is max):
                behind.append(f"{x['weights']} in {told} ({ratio:.2f})")
    return behind
