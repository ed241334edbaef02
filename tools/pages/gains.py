"""The table of README.md that says what int4 weights gain, from committed measurements.

A cell is our time over the other's, least to most of the shapes that were measured at these rows,
both of one run; above 1.00 the other is faster, and the cell is bold.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import ROOT
from .page import Page, parts
from .table import table

ROWS = (1, 16, 64, 256, 4096)
HEADER = ("int4 over", "on", *map(str, ROWS), "run", "command")

Fields = Mapping[str, Any]  # names of fields of a row -> values
Shape = tuple[int, int]


@dataclass(frozen=True)
class Line:
    """A line of the table: which rows of a file are ours, and which the other's."""

    title: str
    machine: str
    file: str
    command: str
    ours: Fields
    other: Fields = field(default_factory=dict)


W4_FP16 = {"op": "fpA_intB_gemm", "dtype": "float16", "bits": 4, "group_size": 128,
           "zero_mode": None, "selected": True}  # fmt: skip
W4_BF16 = {"op": "fpA_intB_gemm", "dtype": "bfloat16", "bits": 4, "group_size": 128}
ZEN_5 = "benchmarks/results/cpu_zen_5_2_threads.json"
ZEN_4 = "benchmarks/peers/cpu_int4_zen4.csv"
VLLM = "benchmarks/peers/vllm_kernels_h200.csv"
GEMM, PEERS = "gemm", "gemm_peers"  # ops of python -m benchmarks
OF_VLLM = {"kind": "own", "section": "w4a16"}
LINES = (
    Line("cuBLAS, fp16", "H200", "benchmarks/results/gemm_h200.json", GEMM, W4_FP16,
         {"op": "cublas", "dtype": "float16"}),
    Line("Marlin of vLLM", "H200", VLLM, PEERS, OF_VLLM, {"kind": "marlin", "section": "w4a16"}),
    Line("Machete of vLLM", "H200", VLLM, PEERS, OF_VLLM, {"kind": "machete", "section": "w4a16"}),
    Line("bitsandbytes, NF4", "H100", "benchmarks/peers/bitsandbytes_h100.csv", PEERS,
         {"kind": "own_int4_g64"}, {"kind": "bnb_nf4"}),
    Line("torch, bf16", "Zen 5, 2 threads", ZEN_5, GEMM, W4_BF16,
         {"op": "F.linear", "dtype": "bfloat16"}),
    Line("torch, int4", "Zen 5, 2 threads", ZEN_5, GEMM, W4_BF16,
         {"op": "aten", "bits": 4, "group_size": 128}),
    Line("ONNX Runtime, fp32", "Zen 4, 1 thread", ZEN_4, PEERS, {"kind": "ours int4 fp32"},
         {"kind": "ort int4 level 0"}),
    Line("the same, int8 activations", "Zen 4, 1 thread", ZEN_4, PEERS,
         {"kind": "ours int4 bf16"}, {"kind": "ort int4 level 4"}),
)  # fmt: skip


def rows_of(file: str) -> list[dict[str, Any]]:
    text = (ROOT / file).read_text(encoding="utf-8")
    if file.endswith(".json"):
        rows: list[dict[str, Any]] = json.loads(text)["rows"]
        return rows
    return list(csv.DictReader(text.splitlines()))


def times(rows: Iterable[Fields], wanted: Fields, m: int) -> dict[Shape, float]:
    """Return (N, K) -> microseconds at M rows."""
    return {
        (int(row["N"]), int(row["K"])): float(row["us"])
        for row in rows
        if int(row["M"]) == m and all(row.get(name) == value for name, value in wanted.items())
    }


def ratios(rows: list[dict[str, Any]], line: Line, m: int) -> list[float]:
    """Our time over the other's, at each shape that both were measured at."""
    ours, other = times(rows, line.ours, m), times(rows, line.other, m)
    return [us / other[shape] for shape, us in ours.items() if shape in other]


def cell(found: list[float]) -> str:
    if not found:
        return "-"
    least, most = f"{min(found):.2f}", f"{max(found):.2f}"
    text = least if least == most else f"{least}-{most}"
    return f"**{text}**" if float(most) > 1 else text


def table_rows() -> Iterator[tuple[str, ...]]:
    for line in LINES:
        rows = rows_of(line.file)
        cells = (cell(ratios(rows, line, m)) for m in ROWS)
        run = f"[{Path(line.file).suffix[1:]}]({line.file})"
        yield (line.title, line.machine, *cells, run, f"`{line.command}`")


def text() -> str:
    return table(HEADER, table_rows())


PAGE = Page({"README.md": parts(gains=text)})
