"""docs/call.svg and docs/packed_layout.svg, the pictures of docs/architecture.md.

The way of a call names files, which must exist; the packed layout is asked of the C++ core that
`make build` leaves in build/python.
"""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from . import ROOT
from .page import Page, whole
from .svg import box, svg, text

# The folder of the C++ core.
CORE = Path(os.environ.get("MIXED_GEMM_CORE_MODULE_DIR") or ROOT / "build" / "python")


@dataclass(frozen=True)
class Step:
    title: str
    file: str  # below csrc/, or empty
    text: str
    data: str = ""  # the result that goes on to the next step


# fpA_intB_gemm by a multistage kernel; the other families differ in the folder's name alone.
CALL = (
    Step("op", "ops/gemm/cuda.cpp", "checks tensors, allocates the output", "GemmProblem"),
    Step("choice", "dispatch/select.h", "what was measured, or the least predicted time", "Choice"),
    Step("run", "multistage/run.cpp", "operands in form, workspace for a split of K", "Work"),
    Step("launch", "multistage/launch.cuh", "templates end: one launch line", "Params"),
    Step("kernel", "multistage/kernel.cuh", "grid/: which tile, which part of K"),
    Step("mainloop", "mainloop/multistage_mainloop.cuh", "cp.async, ldmatrix, convert, mma.sync"),
    Step("dequantize", "dequant/integer_converter.h", "prmt and lop3 with magic numbers"),
    Step("epilogue", "epilogue/tile_output.cuh", "scale, bias, activation, one rounding, store"),
)


def draw_call() -> str:
    left, width, height, gap = 20, 620, 48, 22
    body = []
    for i, step in enumerate(CALL):
        if not (ROOT / "csrc" / step.file).is_file():
            raise FileNotFoundError(f"csrc/{step.file}, which CALL names")
        y = 20 + i * (height + gap)
        on_host = bool(step.data)
        body += [
            box(left, y, width, height, "#eef3fb" if on_host else "#fdf3e4"),
            text(left + 12, y + 20, step.title, 14, 'font-weight="bold"'),
            text(left + 120, y + 20, f"csrc/{step.file}", 13, 'fill="#234"'),
            text(left + 120, y + 38, step.text, 12, 'fill="#555"'),
        ]
        if i + 1 < len(CALL):
            middle = left + 60
            below = y + height
            body += [
                f'<path d="M{middle} {below} v{gap - 4}" stroke="#333" fill="none"/>',
                f'<path d="M{middle - 4} {below + gap - 6} l4 6 l4 -6" fill="#333"/>',
            ]
            if step.data:
                body.append(text(middle + 12, below + 15, step.data, 12, 'font-style="italic"'))
    total = 20 + len(CALL) * (height + gap) + 10
    body.append(text(left, total, "blue: on the host; sand: on the GPU", 11, 'fill="#777"'))
    return svg(left * 2 + width, total + 14, body)


COLOURS = ("#cfe2f3", "#f9d9c7", "#d5e8d4", "#e6d6ee")


def draw_layout() -> str:
    sys.path.append(str(CORE))
    core = importlib.import_module("_mixed_gemm_core")

    words, slots, k_pad = 32, 8, core.PAD_K
    cell_w, cell_h, left, top = 56, 20, 70, 56
    body = [
        text(
            20, 24, "int4: one line of 128 bytes, 32 words of 8 slots, holds 64 k of 4 columns", 14
        ),
        text(20, 42, "n, k in each slot of 4 bits; the low nibble of a word is slot 0", 12),
    ]
    for word in range(words):
        y = top + word * cell_h
        body.append(text(20, y + 14, f"word {word}", 11))
        for slot in range(slots):
            n, k = core.element(4, word, slot, k_pad)
            x = left + slot * cell_w
            fill = COLOURS[n % len(COLOURS)]
            body += [
                f'<rect x="{x}" y="{y}" width="{cell_w}" height="{cell_h}" fill="{fill}" '
                'stroke="#999"/>',
                text(x + 8, y + 14, f"{n}, {k}", 11),
            ]
    return svg(left + slots * cell_w + 20, top + words * cell_h + 16, body)


def lacks() -> str:
    return "" if CORE.is_dir() else "the C++ core is not built: make build"


PAGE = Page(
    {"docs/call.svg": whole(draw_call), "docs/packed_layout.svg": whole(draw_layout)}, lacks
)
