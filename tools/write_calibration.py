"""Writes the table of docs/calibration.md: how the blocks of each architecture of transformers are
calibrated. Each that a tiny random configuration can build is quantized, and meanwhile every layer
must read what it would read in the model whose earlier units are rounded, bit for bit.

    python tools/write_calibration.py                  writes the page; half an hour on two cores
    python tools/write_calibration.py --only t5 bert   prints how these are calibrated
    python tools/write_calibration.py --part 0/2 FILE  adds every second one to a file of lines
    python tools/write_calibration.py --from FILE...   writes the page from such files

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

from written import settle, with_part

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "calibration.md"
BEGIN = "<!-- architectures: written by tools/write_calibration.py -->"
END = "<!-- architectures: end of tools/write_calibration.py -->"
# Return the slowest way that a block of a model needs.
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
    """Tell what became of one architecture.

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
        "| blocks | kind | architectures |",
        "| --- | --- | --- |",
    ]
    lines += [
        f"| {text} | {kind} ({len(by[way, kind])}) | {', '.join(by[way, kind])} |"
        for way, text in WAYS.items()
        for kind in KINDS
        if by[way, kind]
    ]
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


def main(arguments: list[str]) -> int:
    """Write or check the page; return the exit status."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.simplefilter("ignore")
    sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "python")]
    if arguments[:1] == ["--from"]:
        texts = [line for x in arguments[1:] for line in Path(x).read_text().splitlines()]
        part = part_of_page(json.loads(line) for line in texts)
        return settle(PAGE, with_part(PAGE, BEGIN, part, END), [])
    names = list(support("architectures").names().items())
    if arguments[:1] == ["--only"]:
        for name, head in names:
            if name in arguments[1:]:
                print(found(name, head))
        return 0
    if arguments[:1] == ["--part"]:
        index, parts = map(int, arguments[1].split("/"))
        with Path(arguments[2]).open("a") as file:
            for name, head in names[index::parts]:
                print(json.dumps(found(name, head, LIMIT)), file=file, flush=True)
        return 0
    rows = [found(name, head, LIMIT) for name, head in names]
    return settle(PAGE, with_part(PAGE, BEGIN, part_of_page(rows), END), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
