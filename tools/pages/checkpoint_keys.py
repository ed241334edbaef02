"""The tables of docs/checkpoint_keys.md, from mixed_gemm/formats/key_table.py."""

from __future__ import annotations

from collections.abc import Mapping

from mixed_gemm.formats.key_rows import Row, Use
from mixed_gemm.formats.key_table import TABLE

from .page import Page, parts
from .table import table

# Sections whose writers put the same keys into the files of all of them.
FAMILY = ("gptq", "awq", "auto-round", "fp8")
# This section describes no configuration of a file.
HIDDEN = ("gguf",)


def done(row: Row) -> str:
    """Say how a key is used, and for which values."""
    if not row.fine.words or row.fine.words == "nothing":
        return row.use.value
    return f"{row.use.value}{': ' if row.use is Use.APPLIED else ' unless '}{row.fine.words}"


def why(row: Row) -> str:
    if row.inside and row.use is Use.APPLIED:
        return f"see {row.inside}"
    return row.why.replace(" ({path}: {value})", "")


def section(rows: Mapping[str, Row]) -> str:
    """Keys with one row stand together, in the order of the uses."""
    keys: dict[tuple[str, str], list[str]] = {}
    for use in Use:
        for key, row in rows.items():
            if row.use is use:
                keys.setdefault((done(row), why(row)), []).append(f"`{key}`")
    cells = ([", ".join(names), what, reason] for (what, reason), names in keys.items())
    return table(["key", "what is done", "why"], cells, tight=True)


def text() -> str:
    first, *others = (TABLE[name] for name in FAMILY)
    shared = {k: row for k, row in first.items() if all(x.get(k) == row for x in others)}
    texts = [f"## {', '.join(FAMILY[:-1])} and {FAMILY[-1]}", section(shared)]
    for name, rows in TABLE.items():
        if name in HIDDEN:
            continue
        left = {k: row for k, row in rows.items() if name not in FAMILY or k not in shared}
        texts += [f"## {name}", section(left)]
    return "\n\n".join(texts)


PAGE = Page({"docs/checkpoint_keys.md": parts(keys=text)})
