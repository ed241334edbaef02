"""The table of README.md that says what runs where, as plan() answers.

The answers are those of the built library, with the tuned tables that ship and none of the user's.
A build for fewer GPUs than the default ones refuses more, and does not write the table.
"""

from __future__ import annotations

import itertools
import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

import mixed_gemm

from .page import Page, parts
from .table import table

os.environ["MIXED_GEMM_CACHE_DIR"] = str(Path(tempfile.gettempdir()) / "mixed_gemm_no_tables")

# One GPU of each compute capability, as large as an A100, A10, L40 and H100.
DEVICES = {
    "CPU": "cpu",
    "8.0": "cuda:sm=80,sms=108,smem=166912",
    "8.6": "cuda:sm=86,sms=72,smem=101376",
    "8.9": "cuda:sm=89,sms=142,smem=101376",
    "9.0": "cuda:sm=90,sms=132,smem=232448",
    "10.0": "cuda:sm=100,sms=148,smem=232448",
    "12.0": "cuda:sm=120,sms=170,smem=101376",
}
ROWS = (1, 16, 64, 256, 1024, 4096)
SIDE = 4096  # N and K
SHORT = {"dequantize_dense": "dense"}
GROUPED = "grouped_"  # stands before the families of experts
# In a build for these every answer can be had (cmake/CudaArchitectures.cmake).
ALL_ARCHS = ("80", "89", "90", "100", "120")

Problem = dict[str, Any]
STORED: tuple[Problem, ...] = (
    {"bits": 4},
    {"bits": 8},
    {"weight": "e2m1", "group_size": 32},
    {"weight": "e2m1", "group_size": 16},
)
HALF: list[Problem] = [
    {"dtype": dtype, **weight}
    for dtype, weight in itertools.product((torch.float16, torch.bfloat16), STORED)
]
EXPERTS = 8
PROBLEMS: dict[str, list[Problem]] = {
    "int4, int8, MXFP4, NVFP4, NF4 weights, 16-bit activations": HALF,
    "the same, float32 activations": [{"dtype": torch.float32, "bits": bits} for bits in (4, 8)],
    "experts of int4, int8, MXFP4, NVFP4": [{**x, "experts": EXPERTS} for x in HALF],
    "int8 weights and activations": [{"dtype": torch.int8}],
    "float8 weights and activations": [{"dtype": torch.float8_e4m3fn}],
}
BLOCKS = "int8 weights, activations rounded by blocks"


def family(m: int, problem: Problem, device: str) -> str:
    options = {**problem, "device": device}
    if mixed_gemm.why_not(m, SIDE, SIDE, **options) is not None:
        return "-"
    return mixed_gemm.plan(m, SIDE, SIDE, **options).family


def block_family(m: int, device: str) -> str:
    if device == "cpu":
        return "cpu"
    answer = torch.ops.mixed_gemm._plan_block_quant_gemm(m, SIDE, SIDE, 128, device)
    return str(json.loads(answer)["family"])


def cell(names: Iterable[str]) -> str:
    """Each name once; what runs with few rows comes first."""
    short = (SHORT.get(name, name).removeprefix(GROUPED) for name in names)
    return ", ".join(dict.fromkeys(short))


def text() -> str:
    rows = []
    for title, problems in PROBLEMS.items():
        cells = [
            cell(family(m, problem, device) for m in ROWS for problem in problems)
            for device in DEVICES.values()
        ]
        rows.append([title, *cells])
    blocks = [cell(block_family(m, device) for m in ROWS) for device in DEVICES.values()]
    return table(["", *DEVICES], [*rows, [BLOCKS, *blocks]], tight=True)


def lacks() -> str:
    build = mixed_gemm.env().build
    archs = str(build.get("cuda_archs", ""))
    knows_every_gpu = not build.get("cuda") or all(arch in archs for arch in ALL_ARCHS)
    return "" if knows_every_gpu else "this build is for fewer GPUs than the table has"


PAGE = Page({"README.md": parts(support=text)}, lacks)
