"""docs/decode.md and docs/decode.svg: what the time of a step of a decoder is, from the files that
``python -m benchmarks decode`` wrote.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import ROOT
from .page import Page, parts, whole
from .svg import box, svg, text
from .table import table

RUNS = ("decode_h200.json", "decode_cpu_xeon_amx_2_threads.json")
COMPILED = ("decode_transformers_cpu_epyc_2_threads.json",)  # with rows for both loops
STEADY = 0.05  # changes of the dense model's time within a run, above which no time is shown
PARTS = ("linears", "attention", "between", "head", "rest")
COLOURS = dict(zip(PARTS, ("#7fb3d5", "#f5cba7", "#d7bde2", "#a9dfbf", "#e5e7e9"), strict=True))
LEFT, WIDTH, BAR, TOP = 190, 620, 20, 60  # lengths in the units of the picture


def _run(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / name).read_text())
    return found


def _steps(rows: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    return list(dict.fromkeys((x["batch"], x["tokens"], x["context"]) for x in rows))


def _of_loop(found: dict[str, Any], loop: str) -> list[dict[str, Any]]:
    """Rows of a loop; files from before there were two have the plain one."""
    return [x for x in found["rows"] if x.get("loop", "plain") == loop]


def _title(step: tuple[int, int, int]) -> str:
    batch, tokens, context = step
    if tokens == 1:
        return f"batch {batch}, {context} tokens before"
    return f"{tokens} tokens at once"


def _models(rows: list[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the name of a model and its rows, one a step."""
    models: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        more = ", joint" if row.get("products") == "joint" else ""
        more += ", once more" if row.get("repeat") else ""
        models.setdefault(f"{row['weights']}, head {row['head_weights']}{more}", []).append(row)
    yield from models.items()


def _cell(row: dict[str, Any], dense: dict[str, Any]) -> str:
    return f"{row['us'] / 1e3:.{1 if dense['us'] > 1e5 else 2}f} ({row['us'] / dense['us']:.2f})"


def _table_of(rows: list[dict[str, Any]]) -> str:
    models = dict(_models(rows))
    dense = next(iter(models.values()))
    header = ["weights", *map(_title, _steps(rows)), "MB that a step reads"]
    cells = (
        [
            model,
            *(_cell(row, other) for row, other in zip(rows, dense, strict=True)),
            f"{rows[0]['weight_bytes'] / 1e6:.0f}",
        ]
        for model, rows in models.items()
    )
    return table(header, cells)


def _text_of(name: str) -> str:
    found = _run(name)
    meta = found["meta"]
    where = meta.get("gpu") or f"{meta['threads']} threads of an {meta['cpu']}"
    what = f"{meta['layers']} layers of the shape `{meta['shape']}` and its head, {meta['dtype']}"
    return f"""{what}, on {where}
with torch {meta["torch"]}: ms of a step, and in brackets over the dense model
([{name}](../benchmarks/results/{name})):

{_table_of(_of_loop(found, "plain"))}"""


def _compiled_text_of(name: str) -> str:
    found = _run(name)
    meta, rows = found["meta"], _of_loop(found, "transformers")
    *_, (_, again) = models = list(_models(rows))
    changed = max(abs(y["us"] / x["us"] - 1) for x, y in zip(models[0][1], again, strict=True))
    differs = max(x["differs_by"] / x["limit"] for x in rows)
    where = meta.get("gpu") or f"{meta['threads']} threads of an {meta['cpu']}"
    if changed > STEADY:
        return f"""Compiled steps of transformers, on {where}: no time is claimed, since the dense
model's changed by {changed:.0%} between the begin and the end of the run, beside other work
([{name}](../benchmarks/results/{name})). Logits differ from the eager model's by at most
{differs:.2f} of the limit."""
    what = f"{meta['layers']} layers of the shape `{meta['shape']}` and its head, {meta['dtype']}"
    return f"""{what}, on {where}
with torch {meta["torch"]} and transformers {meta["transformers"]}, a LlamaForCausalLM
compiled to one graph, the host's time included: ms of a step, and in brackets over the dense model
([{name}](../benchmarks/results/{name})). The dense model's time changed by up to {changed:.0%}
between the begin and the end of the run; logits differ from the eager model's by at most
{differs:.2f} of the limit:

{_table_of(rows)}"""


def numbers() -> str:
    """Tables, one a run."""
    compiled = [x for x in COMPILED if (ROOT / "benchmarks" / "results" / x).is_file()]
    return "\n\n".join([*map(_text_of, RUNS), *map(_compiled_text_of, compiled)])


def draw() -> str:
    """Bars of the parts of a step, one token of one sequence, of the first run."""
    of_run = _of_loop(_run(RUNS[0]), "plain")
    bars = [(model, rows[0]) for model, rows in _models(of_run)]
    longest = max(row["us"] for _, row in bars)
    body = [text(LEFT, 24, f"{_title(_steps(of_run)[0])}: ms of a step", 15)]
    for i, part in enumerate(PARTS):
        body += [box(LEFT + i * 110, 34, 12, 12, COLOURS[part])]
        body += [text(LEFT + i * 110 + 18, 45, part)]
    for i, (model, row) in enumerate(bars):
        y, x = TOP + i * (BAR + 8), float(LEFT)
        body.append(text(10, y + 15, model))
        for part in PARTS:
            width = max(row[part], 0) / longest * WIDTH
            body.append(box(round(x, 1), y, round(width, 1), BAR, COLOURS[part]))
            x += width
        body.append(text(round(x + 6, 1), y + 15, f"{row['us'] / 1e3:.1f}"))
    return svg(LEFT + WIDTH + 70, TOP + len(bars) * (BAR + 8) + 10, body)


def lacks() -> str:
    """Return the file that is not there; empty where all are."""
    missing = [x for x in RUNS if not Path(ROOT / "benchmarks" / "results" / x).is_file()]
    return f"no {missing[0]}" if missing else ""


PAGE = Page({"docs/decode.md": parts(decode=numbers), "docs/decode.svg": whole(draw)}, lacks)
