"""How the blocks of each architecture of transformers are calibrated: a table of
docs/calibration.md. Each that a tiny random configuration can build is quantized, and meanwhile
every layer must read what it would read in the model whose earlier units are rounded, bit for bit.

    python -m tools.pages architectures                 writes the page; half an hour on two cores
    python -m tools.pages.architectures --only t5 bert  prints how these are calibrated
    python -m tools.pages.architectures --part 0/2 FILE adds every second one to a file of lines
    python -m tools.pages.architectures --from FILE...  writes the page from such files

It needs the library, transformers and the folder tests/python.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from . import ROOT
from .page import Page, parts
from .table import table

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # transformers reads it once
FILE = "docs/calibration.md"
# The slowest way that a block of the model needs.
WAYS = {
    "whole": "some are looked at while the whole model runs",
    "captured": "some get their inputs from the model's own forward, the others are replayed",
    "chained": "all are replayed in turn",
    "none": "it has none: the whole model runs",
}
LIMIT = 20  # seconds that building one may take, of some hundred
KINDS = ("text", "encoder-decoder", "vision", "audio", "modes")


def support(name: str) -> Any:
    """A module of tests/python/support."""
    return import_module(f"support.{name}")


def way_of(calibrated: dict[str, str]) -> str:
    """A key of ``WAYS``.

    Args:
        calibrated: of a report.
    """
    blocks = [way for way in calibrated.values() if "(is in no block)" not in way]
    for key, part in (("whole", "own forward runs"), ("captured", "own forward gives")):
        if any(part in way for way in blocks):
            return key
    return "chained" if blocks else "none"


def found(name: str, head: str, seconds: int = 0) -> dict[str, Any]:
    """Quantize one architecture, and say how its blocks were calibrated or why that was not tried.

    Args:
        name: its model type. head: the table that has it.
        seconds: that building it may take; 0: any number.

    Raises:
        AssertionError: a layer read something else than it should.
    """
    architectures, plain_runs = support("architectures"), support("plain_runs")
    built = architectures.built(name, head, seconds)
    if isinstance(built, str):
        return {"name": name, "reason": built}
    try:
        ways = plain_runs.calibrated(built.model, built.batches)
    except AssertionError as error:
        return {"name": name, "kind": built.kind, "wrong": str(error)[:300]}
    except Exception as error:
        return {"name": name, "reason": f"{type(error).__name__}: {error}"[:300]}
    return {"name": name, "kind": built.kind, "way": way_of(ways)}


def part_of_page(rows: Iterable[dict[str, Any]]) -> str:
    """The table, and how many architectures are not in it.

    Raises:
        ValueError: a layer of one of them read something else than it should.
    """
    rows = sorted(rows, key=lambda x: str(x["name"]))
    if wrong := [x for x in rows if "wrong" in x]:
        raise ValueError(f"layers read something else: {wrong}")
    by: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in rows:
        if "way" in row:
            by[row["way"], row["kind"]].append(row["name"])
    lines = [
        f"Architectures of transformers {version('transformers')}, each in a tiny random",
        "configuration, two batches of different lengths; every layer read, bit for bit, what it",
        "reads in a plain run of the model whose earlier units are rounded:",
        "",
    ]
    cells = (
        [text, f"{kind} ({len(by[way, kind])})", ", ".join(by[way, kind])]
        for way, text in WAYS.items()
        for kind in KINDS
        if by[way, kind]
    )
    lines.append(table(["blocks", "kind", "architectures"], cells))
    why = Counter(_short(x["reason"]) for x in rows if "reason" in x)
    others = ", ".join(f"{text} ({n})" for text, n in why.most_common())
    return "\n".join([*lines, "", f"Not tried: {sum(why.values())} more: {others}."])


def _short(reason: str) -> str:
    known = (
        "no tiny configuration is found",
        "no data is found for it",
        "it has no linear",
        "none of its layers is quantized",
    )
    return next((x for x in known if reason.endswith(x)), "building or saving the tiny one fails")


def names() -> list[tuple[str, str]]:
    """The architectures, each with the table that has it."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(ROOT / "tests" / "python"))
    return list(support("architectures").names().items())


def text() -> str:
    return part_of_page(found(name, head, LIMIT) for name, head in names())


PAGE = Page({FILE: parts(architectures=text)})


def main(arguments: list[str]) -> int:
    """The exit status."""
    option, *rest = arguments or [""]
    if option == "--from":
        rows = [json.loads(line) for x in rest for line in Path(x).read_text().splitlines()]
        written = Page({FILE: parts(architectures=lambda: part_of_page(rows))})
        return written.settle("architectures", check=False)
    if option == "--only":
        for name, head in names():
            if name in rest:
                print(found(name, head))
    elif option == "--part":
        index, count = map(int, rest[0].split("/"))
        with Path(rest[1]).open("a") as file:
            for name, head in names()[index::count]:
                print(json.dumps(found(name, head, LIMIT)), file=file, flush=True)
    else:
        print(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
