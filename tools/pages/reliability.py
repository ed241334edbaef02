"""docs/reliability.md: what the reliability tests tried, from the committed parts of the record.

    python -m tools.pages.reliability build/reliability [FILE_OR_FOLDER...] \\
        [--keep benchmarks/results/reliability_h100.json]

prints the same tables of other parts (reliability_parts.py). Exit status 1 where a row failed or
tried nothing, and where a file is no part.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from reliability_parts import SUBJECTS, BadPart, Totals, add_up, faults_of, files_of, read_parts

from . import RESULTS
from .page import Page, whole
from .table import table

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


def cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def tables(totals: Totals) -> str:
    """A line for every subject and device, then the rows of each."""
    lines: list[list[str]] = []
    details: list[str] = []
    for what, (heading, unit, failure) in SUBJECTS.items():
        for device in sorted(d for w, d in totals if w == what):
            rows = totals[what, device]
            count = sum(total.count for total in rows.values())
            failed = sum(total.failed for total in rows.values())
            lines.append([heading, device, f"{len(rows)}", f"{count:,} {unit}", f"{failed}"])
            details += ["", f"## {heading}, {device}", "", MEANINGS[what], ""]
            cells = (
                [cell(name), f"{total.count:,}", f"{total.failed}", cell(total.note)]
                for name, total in sorted(rows.items())
            )
            details.append(table(["name", unit, failure, ""], cells, tight=True))
    header = ["what", "device", "rows", "tried", "failed"]
    return "\n".join([table(header, lines, tight=True), *details]) + "\n"


def conclusion(parts: list[dict[str, Any]], faults: list[str]) -> str:
    """Say whether anything failed, and which commits the parts are of, where they name one."""
    commits = {part["meta"]["commit"][:7] for part in parts if "commit" in part["meta"]}
    lines = ["**Nothing failed.**" if not faults else f"**{len(faults)} rows are not clean.**"]
    lines.append(
        "This is a record of runs: a test that is named here has the name of its time"
        + (f" ({', '.join(sorted(commits))})." if commits else ".")
    )
    lines.append("`make gate` tries the part of a CPU again.")
    return "\n".join(lines)


def page(parts: list[dict[str, Any]]) -> str:
    totals = add_up(parts)
    return f"""# What was tried

{conclusion(parts, faults_of(totals))}

`python -m tools.pages reliability` writes this page from `benchmarks/results/reliability_*.json`.

{tables(totals)}"""


def text() -> str:
    return page(read_parts(sorted(RESULTS.glob("reliability_*.json"))))


PAGE = Page({"docs/reliability.md": whole(text)})


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("paths", nargs="+", type=Path, help="files, and folders of *.json")
    parser.add_argument("--keep", type=Path, help="write all parts to this one file")
    options = parser.parse_args(arguments)
    try:
        parts = read_parts(files_of(options.paths))
    except BadPart as error:
        print(error, file=sys.stderr)
        return 1
    totals = add_up(parts)
    faults = faults_of(totals) if totals else ["no part was found"]
    if options.keep:
        options.keep.parent.mkdir(parents=True, exist_ok=True)
        lines = ",\n".join(json.dumps(part) for part in parts)
        options.keep.write_text(f"[\n{lines}\n]\n")
    print(tables(totals))
    print(*faults, sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
