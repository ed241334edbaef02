"""The trials of the reliability tests as one table: reads the JSON files that their parts wrote.

    python tools/reliability_report.py build/reliability [FILE_OR_FOLDER...] \
        [--out docs/reliability.md] [--keep benchmarks/results/reliability_h100.json]

A part is {"what": ..., "meta": {"device": ..., ...}, "rows": [{"name", "count", "failed", ...}]}; a
file holds one, or a list of them as --keep writes it. Rows of one name, subject and device are
added up. Exit status 1 if a row failed or tried nothing, and if a file is no part.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = "MIXED_GEMM_RELIABILITY"  # the variable that names where parts are written
SHORT = "benchmarks/results/reliability_*.json"  # the committed parts

# Subjects that a part can have: (heading, what is counted, what a failure is).
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
# How it is tried, in a sentence below the heading.
MEANINGS = {
    "cases": "Calls with listed arguments, each result against float64 within its bound, or bit by "
    "bit where the op is exact (`tests/problems/`); of extents around 2^31 a refusal that names "
    "the limit counts as an answer (`tests/gpu/sizes.py`); sums over ranks to the bit, with "
    "streams of one GPU for ranks (`tests/python/support/push_on_one_gpu.py`).",
    "sweep": "Calls with random arguments and chosen (free) or forced kernels, likewise; 'stages "
    "checked' with a build whose kernels trap where a copy leaves its stage; 'one after another': "
    "two problems that differ in one thing (`tests/gpu/sweep.py`).",
    "bad_inputs": "Calls that must be refused with the right exception and text, and odd ones that "
    "must work (`tests/python/support/bad_input_names.py`).",
    "mutants": "Deliberate mistakes in the code, and the test that failed with each "
    "(`tools/mutants.py`).",
    "sanitizers": "compute-sanitizer's tools over every kernel (`tests/gpu/sanitize.py`), ASan, "
    "UBSan and TSan over the host code (`tools/sanitize_cpu.py`).",
    "fuzz": "Random files for the loaders (`tests/fuzz/run.py`).",
    "repeats": "Calls repeated on two streams, eager and captured, whose bits must be equal "
    "(`tests/gpu/stress.py`).",
    "faults": "Memory that runs out, locks that hold other values, threads that call first at "
    "once, graphs that outlive each other (`tests/gpu/stress.py`).",
}


class BadPart(ValueError):
    """A file that is not what a part writes."""


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


def cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def table(totals: Totals) -> str:
    """Markdown: a line for every subject and device, then the rows of each."""
    lines = ["| what | device | rows | tried | failed |", "|---|---|---|---|---|"]
    details: list[str] = []
    for what, (heading, unit, failure) in SUBJECTS.items():
        for device in sorted(d for w, d in totals if w == what):
            rows = totals[what, device]
            count = sum(total.count for total in rows.values())
            failed = sum(total.failed for total in rows.values())
            lines.append(f"| {heading} | {device} | {len(rows)} | {count:,} {unit} | {failed} |")
            details += ["", f"## {heading}, {device}", "", MEANINGS[what], ""]
            details.append(f"| name | {unit} | {failure} | |")
            details += ["|---|---|---|---|"]
            details += [
                f"| {cell(name)} | {total.count:,} | {total.failed} | {cell(total.note)} |"
                for name, total in sorted(rows.items())
            ]
    return "\n".join([*lines, *details]) + "\n"


def conclusion(parts: list[dict[str, Any]], faults: list[str]) -> str:
    """Tell what came of it, and which commits the parts are of, where they say."""
    commits = {part["meta"]["commit"][:7] for part in parts if "commit" in part["meta"]}
    lines = ["**Nothing failed.**" if not faults else f"**{len(faults)} rows are not clean.**"]
    lines.append(
        "This is a record of runs: a test that is named here has the name of its time"
        + (f" ({', '.join(sorted(commits))})." if commits else ".")
    )
    lines.append("`make gate` tries the part of a CPU again.")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("paths", nargs="+", type=Path, help="files, and folders of *.json")
    parser.add_argument("--out", type=Path, help="write the tables to this Markdown file")
    parser.add_argument("--keep", type=Path, help="write all parts to this one file")
    options = parser.parse_args(arguments)
    try:
        parts = read_parts(files_of(options.paths))
    except BadPart as error:
        print(error, file=sys.stderr)
        return 1
    totals = add_up(parts)
    text = table(totals)
    faults = faults_of(totals) if totals else ["no part was found"]
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        head = f"# What was tried\n\n{conclusion(parts, faults)}\n\n"
        by = f"Written by `tools/reliability_report.py {SHORT} --out docs/reliability.md`.\n\n"
        options.out.write_text(head + by + text)
    if options.keep:
        options.keep.parent.mkdir(parents=True, exist_ok=True)
        lines = ",\n".join(json.dumps(part) for part in parts)
        options.keep.write_text(f"[\n{lines}\n]\n")
    print(text)
    print(*faults, sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
