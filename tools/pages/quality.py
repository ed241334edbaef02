"""The quality that a language model loses by each method: tables of docs/calibration.md, from
benchmarks/results/quality_*.json.
"""

from __future__ import annotations

from typing import Any

from .page import Page, parts
from .table import results, table

OURS = {  # the method that is compared with each row of benchmarks/quality/peers.py
    f"{theirs} {kind}": f"4 bits g64 {kind}, {ours}"
    for theirs, ours in (("GPTQ", "gptq"), ("AWQ", "awq"), ("autoround", "autoround"))
    for kind in ("symmetric", "asymmetric")
} | {"hqq": "4 bits g64 real zero points, hqq"}


def _cells(row: dict[str, Any]) -> list[str]:
    news, licence = (row["percent"][x] for x in ("news", "licence"))
    memory = f"{row['peak_mb'] / 1000:.1f} GB" if "peak_mb" in row else ""
    return [
        row["name"], f"{news:.1f} %", f"{licence:.1f} %", f"{row['weights_mb']:.0f} MB",
        f"{row['seconds']:.0f} s", memory,
    ]  # fmt: skip


def _table(rows: list[dict[str, Any]]) -> str:
    header = ["scheme", "news", "licence", "weights", "time", "peak memory"]
    return table(header, map(_cells, rows))


def _percent(row: dict[str, Any]) -> str:
    return " / ".join(f"{row['percent'][x]:.1f}" for x in ("news", "licence"))


def _peers(rows: dict[str, dict[str, Any]]) -> str:
    header = ["method", "tool", "theirs, news / licence", "ours"]
    return table(header, (
        [x["name"], x["tool"], f"{_percent(x)} %", f"{_percent(rows[OURS[x['name']]])} %"]
        for x in results("quality_peers_h100.json")["rows"]
    ))  # fmt: skip


def _streaming() -> str:
    found = results("quality_streaming_h100.json")
    block, peak = found["block_bytes"] / 1e9, found["peak_device_bytes"] / 1e9
    resident, seconds = found["peak_resident_bytes"] / 1e9, found["seconds_per_block"]
    return f"""Two blocks of the shape of Llama-3-70B ({block:.1f} GB each in bfloat16), calibrated
by GPTQ from a folder with {found["calibration_tokens"]} tokens: at most {peak:.1f} GB on the GPU
and {resident:.1f} GB on the host, {seconds:.0f} s for each block beside six other processes. The
second moments of the 28672 inputs of a layer are most of it, so that more blocks need no more."""


def _sentences() -> str:
    found = results("quality_sentences_cpu.json")
    header = ["scheme", "degrees", "same neighbour", "weights"]
    rows = []
    for row in found["rows"]:
        same, size = f"{100 * row['same_neighbour']:.0f} %", f"{row['weights_mb']:.1f} MB"
        rows.append([row["name"], f"{row['degrees']:.1f}", same, size])
    return f"""A second model, all-MiniLM-L6-v2 (an encoder of 22 million parameters): by how many
degrees rounding turns the vectors of {found["texts"]} news articles, and how many keep their
nearest neighbour among them; calibrated on {found["calibration_texts"]} speeches and reviews, on a
CPU:

{table(header, rows)}"""


def text() -> str:
    """The best method of each scheme, every method of one scheme, other tools, and memory."""
    found = results("quality_smollm2_h100.json")
    best = [row for row in found["rows"] if row["goal"] is not None]
    others = [row for row in found["rows"] if row["goal"] is None]
    weights = [row for row in others if not row["name"].startswith(("W8A8", "float8"))]
    float8 = [row for row in others if row["name"].startswith("float8")]
    of_float8 = f"\n\nfloat8, activations too but where only weights are:\n\n{_table(float8)}"
    rounded = [row for row in others if row["name"].startswith("W8A8")]
    tokens, about = found["calibration"]["tokens"], found["about"]
    dense = " and ".join(f"{found['dense'][x]:.2f} ({x})" for x in ("news", "licence"))
    return f"""Perplexity above that of the dense model, which has {dense}; {tokens} tokens of
calibration; one {about["gpu"]} that other runs shared, so that one alone takes half the time or
less.

{_table(best)}

4 bits in groups of 64, by method (`None`: each weight to the nearest):

{_table(weights)}

8 bits for weights and activations, by method. The licence is 3712 tokens in 4 windows, and a few
tokens at the begin of each decide much, so that differences below half a percent are chance:

{_table(rounded)}{of_float8 if float8 else ""}

Other tools on the same model, calibration and texts, 4 bits in groups of 64:

{_peers({row["name"]: row for row in found["rows"]})}

{_streaming()}

{_sentences()}"""


def numbers() -> str:
    """Types of 4-bit numbers side by side, by each method that takes them."""
    found = results("quality_numbers_cpu.json")
    rows = {tuple(x["name"].removeprefix("numbers: ").split(", ")): x for x in found["rows"]}
    about, dense = found["about"], found["dense"]
    names = dict.fromkeys(name for name, _ in rows)

    def cell(name: str, method: str) -> str:
        row = rows.get((name, method))
        return "" if row is None else f"{_percent(row)} %"

    header = ["numbers", "nearest", "`rtn`, searched scales", "`gptq`"]
    cells = ([x, *(cell(x, method) for method in ("nearest", "rtn", "gptq"))] for x in names)
    return f"""Perplexity above that of the dense model, which has {dense["news"]:.2f} on
{found["measured_tokens"]} tokens of news and {dense["licence"]:.2f} on the licence, news / licence;
{found["calibration"]["tokens"]} tokens of calibration, a thirtieth of those above; products
{found["products"]} in bfloat16, on one thread of an {about["cpu"]} with torch {about["torch"]}:

{table(header, cells)}"""


def ends() -> str:
    """The embedding and the head, one tensor, dense, in 8 bits and in 4, and chosen."""
    found = results("quality_ends_cpu.json")
    about, dense = found["about"], found["dense"]

    def cells(row: dict[str, Any]) -> list[str]:
        name, _, average = row["name"].removeprefix("ends: ").partition(", average_bits=")
        bits = row["bits"] or {"tables": {}}
        name += "".join(f": {x} bits" for x in bits["tables"].values())
        linears = f"`average_bits={average}`" if average else "int4 g64"
        news, licence = (f"{row['percent'][x]:.1f} %" for x in ("news", "licence"))
        return [name, linears, f"{row['model_mb']:.0f} MB", news, licence]

    header = ["embedding and head", "linears", "whole model", "news", "licence"]
    return f"""Perplexity above that of the dense model, which has {dense["news"]:.2f} on
{found["measured_tokens"]} tokens of news and {dense["licence"]:.2f} on the licence; everything is
rounded to nearest, and `average_bits` measures on {found["calibration"]["tokens"]} tokens; dense
tensors count in 16 bits; on one thread of an {about["cpu"]} with torch {about["torch"]}:

{table(header, map(cells, found["rows"]))}"""


PAGE = Page({"docs/calibration.md": parts(quality=text, numbers=numbers, ends=ends)})
