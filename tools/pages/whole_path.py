"""The part of docs/speed.md on all that a user does with a model, from the file that
``python -m benchmarks.whole_path`` wrote.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .page import Page, parts
from .table import results, table

RUN = "whole_path_cpu_2_threads.json"
# Step -> in the page, in the order of the page.
STEPS = {
    "quantize_": "quantize in memory, s",
    "quantize while loading": "quantize while loading, s",
    "save": "save, s",
    "load it again": "load what was saved, s",
    "write a token": "write a token, ms",
    "compute 1": "compute 1 token, ms",
    "compute 1, compiled": "the same, compiled, ms",
    "compute 256": "compute 256 tokens, ms",
}


def _cell(rows: dict[str, dict[str, Any]], step: str) -> str:
    if step not in rows:
        return "-"
    seconds = float(rows[step]["seconds"])
    return f"{seconds * 1e3:.1f}" if STEPS[step].endswith("ms") else f"{seconds:.2f}"


def _tables() -> Iterator[str]:
    found: dict[str, dict[str, dict[str, Any]]] = {}
    models: dict[str, list[str]] = {}
    for row in results(RUN)["rows"]:
        name = f"{row['model']}, {row['side']}"
        models.setdefault(row["model"], [])
        if name not in found:
            models[row["model"]].append(row["side"])
        found.setdefault(name, {})[row["step"]] = row
    for model, sides in models.items():
        lines = (
            [words, *(_cell(found[f"{model}, {side}"], step) for side in sides)]
            for step, words in STEPS.items()
        )
        yield table([f"`{model}`", *sides], lines)


def text() -> str:
    meta = results(RUN)["meta"]
    where = meta.get("gpu") or f"{meta['threads']} threads of an {meta['cpu']}"
    said = f"""On {where}, torch {meta["torch"]}, transformers {meta["transformers"]}
([{RUN}](../benchmarks/results/{RUN})):"""
    return "\n\n".join([said, *_tables()])


PAGE = Page({"docs/speed.md": parts(whole_path=text)})
