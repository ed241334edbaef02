"""The words of a cell of the tables, and the folder in which the processes leave files for each
other. This file must not import mixed_gemm: the process of stock transformers reads it too.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

SAME = "bit for bit"
WRONG = "WRONG"  # with it begins a cell that the library has to be mended for
REFUSED = "refused: "
LONGEST = 400  # characters of a refusal


def compared(found: Tensor, wanted: Tensor, bound: float) -> str:
    """How far one result is from another: the norm of the difference over that of ``wanted``; with
    a bound of 0 they must be the same bits. The bound stands in the cell rather than what was
    measured, which differs between CPUs."""
    if bound == 0 and torch.equal(found, wanted):
        return SAME
    distance = float((found.float() - wanted.float()).norm() / wanted.float().norm())
    if bound > 0 and distance <= bound:
        return f"within {bound:g}"
    return f"{WRONG}: off by {distance:.2g}, where {bound:g} is the bound"


def _sentence(error: Any, folder: Path) -> str:
    """The first sentence of an error, in one line and without what differs between runs."""
    text = str(error) or type(error).__name__
    if callable(getattr(error, "errors", None)):  # errors of pydantic have a list
        first = error.errors()[0]
        text = re.sub(r"('[\w-]+', ){3,}.*", "... ", first["msg"]) + f"got {first['input']!r}"
    text = text.replace(str(folder), "").partition("Hint:")[0]
    text = re.sub(r"\s+", " ", text).strip()
    text = re.split(r"(?<=[a-z\])])\. (?=[A-Z])", text)[0].removesuffix(".")
    text = re.sub(r"(?<!\w)/\S*?([\w-]+/)?([\w.-]+: )", r"\2", text)
    return textwrap.shorten(text, LONGEST, placeholder=" ...")


class Cells:
    """The cells that one process fills: column -> text, of every row.

    Args:
        folder: of the whole run; ``name``: of this process, whose cells go to ``name.json``.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._file = folder, folder / f"{name}.json"
        self._rows: dict[str, dict[str, str]] = {}

    def run(self, row: str, column: str, cell: Callable[[], str]) -> None:
        """Record what ``cell()`` answers, or the sentence with which it was refused. The stack is
        on stderr, for whoever looks for the reason."""
        try:
            text = cell()
        except Exception as error:
            print(f"--- {row}: {column}", file=sys.stderr)
            traceback.print_exc(limit=-6)
            text = REFUSED + _sentence(error, self._folder)
        self._rows.setdefault(row, {})[column] = text

    def write(self) -> None:
        self._file.write_text(json.dumps(self._rows, indent=1))


def row_folder(folder: Path, row: str) -> Path:
    """Return the folder of the files of a row."""
    path = folder / re.sub(r"\W+", "_", row)
    path.mkdir(exist_ok=True)
    return path


def logits(model: Any, inputs: Mapping[str, Any]) -> Tensor:
    """The logits of a model of transformers, in float32."""
    with torch.no_grad():
        out: Tensor = model(**inputs).logits
    return out


def quietly() -> None:
    """No bars, no advice and no network from transformers."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
