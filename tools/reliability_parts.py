"""The record of what the reliability tests tried, in parts: each program that tried something
leaves a file of JSON. tools/pages/reliability.py makes the page of them.

A part is {"what": ..., "meta": {"device": ..., ...}, "rows": [{"name", "count", "failed", ...}]}; a
file holds one, or a list of them. Rows of one name, subject and device are added up.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = "MIXED_GEMM_RELIABILITY"  # the variable that names where parts are written

# The subjects of parts: (heading, what is counted, what a failure is).
SUBJECTS = {
    "cases": ("Answers", "calls", "beyond the bound"),
    "sweep": ("Free-choice sweep", "calls", "beyond the bound"),
    "bad_inputs": ("Bad inputs", "inputs", "not refused as they should be"),
    "mutants": ("Mutants", "made", "survived"),
    "sanitizers": ("Sanitizers", "calls or tests", "errors"),
    "fuzz": ("Fuzzing", "executions", "crashes and wrong exceptions"),
    "repeats": ("Bitwise repeats", "repeats", "that differed"),
    "faults": ("Faults", "injected", "not survived"),
}


class BadPart(ValueError):
    """A file that holds no part."""


@dataclass
class Total:
    count: int = 0
    failed: int = 0
    note: str = ""

    def add(self, row: dict[str, Any]) -> None:
        self.count += row["count"]
        self.failed += row["failed"]
        self.note = row.get("note", self.note)


Totals = dict[tuple[str, str], dict[str, Total]]  # (subject, device) -> name -> total


def write_part(
    what: str,
    rows: Iterable[dict[str, Any]],
    *,
    device: str = "cpu",
    part: str = "",
    **meta: Any,
) -> Path | None:
    """Write one part to the folder that $MIXED_GEMM_RELIABILITY names; without it do nothing.

    ``part`` tells files of one ``what`` apart: name it where the work is divided.
    """
    folder = os.environ.get(FOLDER)
    if not folder:
        return None
    content = {"what": what, "meta": {"device": device, **meta}, "rows": list(rows)}
    check(content)
    path = Path(folder) / f"{what}{'-' if part else ''}{part}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


def check(part: Any) -> None:
    """Raise BadPart unless it is one."""
    if not isinstance(part, dict) or part.get("what") not in SUBJECTS:
        raise BadPart(f'"what" must be one of {", ".join(SUBJECTS)}')
    if not isinstance(part.get("meta"), dict) or not isinstance(part["meta"].get("device"), str):
        raise BadPart('"meta" must name the "device"')
    if not isinstance(part.get("rows"), list) or not part["rows"]:
        raise BadPart('"rows" must be a list of at least one row')
    for row in part["rows"]:
        counts = [row.get("count"), row.get("failed")] if isinstance(row, dict) else [None]
        # bool is an int to Python, and a count of True is a mistake.
        whole = all(type(n) is int and n >= 0 for n in counts)
        if not whole or not isinstance(row.get("name"), str):
            raise BadPart(f'a row needs a "name" and whole "count" and "failed", got {row}')


def files_of(paths: Iterable[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        files += sorted(path.glob("*.json")) if path.is_dir() else [path]
    return files


def read_parts(files: Iterable[Path]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for file in files:
        try:
            content = json.loads(file.read_text())
            of_file = content if isinstance(content, list) and content else [content]
            for part in of_file:
                check(part)
        except (OSError, ValueError) as error:
            raise BadPart(f"{file}: {error}") from error
        parts += of_file
    return parts


def add_up(parts: Iterable[dict[str, Any]]) -> Totals:
    totals: Totals = defaultdict(lambda: defaultdict(Total))
    for part in parts:
        for row in part["rows"]:
            totals[part["what"], part["meta"]["device"]][row["name"]].add(row)
    return totals


def faults_of(totals: Totals) -> list[str]:
    faults = []
    for (what, device), rows in totals.items():
        for name, total in rows.items():
            if total.count == 0 and total.failed == 0:
                faults.append(f"{what} on {device}: {name}: nothing was tried")
            if total.failed:
                faults.append(
                    f"{what} on {device}: {name}: {total.failed} of {total.count} "
                    f"{SUBJECTS[what][2]}"
                )
    return faults
