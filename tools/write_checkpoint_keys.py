"""Writes the tables of docs/checkpoint_keys.md from mixed_gemm/formats/key_table.py.

python tools/write_checkpoint_keys.py          writes them
python tools/write_checkpoint_keys.py --check  exit status 1 if they would change
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from written import settle, with_part

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from mixed_gemm.formats.key_rows import Row, Use  # noqa: E402
from mixed_gemm.formats.key_table import TABLE  # noqa: E402

PAGE = ROOT / "docs" / "checkpoint_keys.md"
BEGIN = "<!-- keys: tools/write_checkpoint_keys.py writes this part -->"
END = "<!-- end of keys -->"
# Sections whose writers put the same keys into the files of all of them.
FAMILY = ("gptq", "awq", "auto-round", "fp8")
# The section of what is no configuration of a file.
HIDDEN = ("gguf",)


def done(row: Row) -> str:
    """Tell what becomes of a key, for which values."""
    if not row.fine.words or row.fine.words == "nothing":
        return row.use.value
    return f"{row.use.value}{': ' if row.use is Use.APPLIED else ' unless '}{row.fine.words}"


def why(row: Row) -> str:
    if row.inside and row.use is Use.APPLIED:
        return f"see {row.inside}"
    return row.why.replace(" ({path}: {value})", "")


def table(rows: Mapping[str, Row]) -> str:
    """Keys with one row stand together, in the order of the uses."""
    keys: dict[tuple[str, str], list[str]] = {}
    for use in Use:
        for key, row in rows.items():
            if row.use is use:
                keys.setdefault((done(row), why(row)), []).append(f"`{key}`")
    lines = [
        f"| {', '.join(names)} | {what} | {reason} |" for (what, reason), names in keys.items()
    ]
    return "\n".join(["| key | what is done | why |", "|---|---|---|", *lines])


def part() -> str:
    first, *others = (TABLE[name] for name in FAMILY)
    shared = {k: row for k, row in first.items() if all(x.get(k) == row for x in others)}
    texts = [f"## {', '.join(FAMILY[:-1])} and {FAMILY[-1]}", table(shared)]
    for name, rows in TABLE.items():
        if name in HIDDEN:
            continue
        left = {k: row for k, row in rows.items() if name not in FAMILY or k not in shared}
        texts += [f"## {name}", table(left)]
    return "\n\n".join(texts)


def main(arguments: list[str]) -> int:
    return settle(PAGE, with_part(PAGE, BEGIN, part(), END), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
