"""Tables and lists of words, as every page has them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from . import RESULTS


def table(header: Iterable[str], rows: Iterable[Iterable[str]], *, tight: bool = False) -> str:
    """A table of Markdown, without a line break at its end.

    Args:
        tight: no spaces in the line below the header, and one in an empty cell of the header.
    """
    titles = list(header)
    first = _line(titles).replace("|  |", "| |") if tight else _line(titles)
    rule = "|---" * len(titles) + "|" if tight else _line(["---"] * len(titles))
    return "\n".join([first, rule, *map(_line, rows)])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def listed(words: Iterable[object]) -> str:
    """Words with commas, and an "and" before the last."""
    *first, last = map(str, words)
    return f"{', '.join(first)} and {last}" if first else last


def versions(found: dict[str, str]) -> str:
    """Packages with their versions."""
    return ", ".join(f"{name} {number}" for name, number in found.items())


def results(name: str) -> Any:
    """A file of benchmarks/results."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))
