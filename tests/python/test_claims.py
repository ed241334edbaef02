"""Numbers that pages state, computed again: of this tree, and of the committed results.

A count that changes with every commit is not stated at all; what is left stands in CLAIMS, or is
written by a script, and `test_no_page_counts_what_nobody_checks` looks for others.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import pages

ROOT = pages.ROOT
WORDS = {8: "eight", 9: "nine", 10: "ten", 11: "eleven", 12: "twelve", 15: "fifteen"}
CODE = (".h", ".cuh", ".cpp", ".cu")
GOLDEN = ROOT / "tests" / "cpp" / "golden"


def code() -> dict[Path, list[str]]:
    """The lines of every file of csrc/."""
    files = (path for path in (ROOT / "csrc").rglob("*") if path.suffix in CODE)
    return {path: path.read_text().splitlines() for path in files}


def share_of_comments(suffixes: tuple[str, ...]) -> float:
    lines = [
        line.strip()
        for path, text in code().items()
        for line in text
        if path.suffix in suffixes and line.strip()
    ]
    return sum(line.startswith("//") for line in lines) / len(lines)


def problems_and_gpus() -> str:
    lines = (GOLDEN / "candidates.txt").read_text().splitlines()
    (gpus,) = {len(line.partition("|")[2].split()) for line in lines}
    listed = (GOLDEN / "list_candidates.cpp").read_text().split("kGpus[] = {")[1].split("};")[0]
    assert listed.count('"') == 2 * gpus
    return f"{len(lines)} problems on {WORDS[gpus]} GPUs"


def families() -> str:
    folders = {path.parent.name for path in (ROOT / "csrc").glob("*/family.h")} - {"core"}
    return f"{WORDS[len(folders | {'dense'})]} families"  # dense has the library's kernels


CLAIMS = {  # (page, how often it says so) -> what it says
    ("docs/architecture.md", 2): problems_and_gpus,
    ("docs/architecture.md", 1): families,
}
OPENED = "a reader opens five files"


@pytest.mark.parametrize("where", CLAIMS, ids=lambda where: f"{where[0]}-{where[1]}")
def test_counts_are_those_of_the_tree(where: tuple[str, int]) -> None:
    page, times = where
    assert " ".join(pages.text(page).split()).count(CLAIMS[where]()) == times


def test_the_table_of_families_has_a_row_for_each_folder() -> None:
    table = pages.text("docs/architecture.md").split("| family | problem |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)`", table, re.MULTILINE)
    assert len(rows) == len(set(rows)) and families() == f"{WORDS[len(rows)]} families"


def test_the_way_of_a_call_is_as_long_as_the_page_says() -> None:
    page = pages.text("docs/architecture.md")
    assert OPENED in page
    table = page.split("| op | files to open |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| `.*? \| (.+) \|$", table, re.MULTILINE)
    assert len(rows) == 7
    for row in rows:
        opened = re.findall(r"`[\w/]+\.\w+`", re.sub(r"\(.*?\)", "", row))
        assert len(opened) == 5, row


def test_sizes_of_files_and_comments_are_about_what_the_page_says() -> None:
    page = pages.text("docs/architecture.md")
    assert "| medians below 80 in every kind, none above 400 |" in page
    sizes = {path: len(lines) for path, lines in code().items()}
    for suffix in CODE:
        assert statistics.median(n for path, n in sizes.items() if path.suffix == suffix) < 80
    assert max(sizes.values()) <= 400
    assert "| about 10 % (`.h` 16 %), headers open with their purpose;" in page
    assert 0.09 < share_of_comments(CODE) < 0.12
    assert 0.15 < share_of_comments((".h",)) < 0.175


COUNTED = re.compile(
    r"(?<![\d.])\b(\d[\d,]*|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty)"
    r" (?:[a-z+-]+ )?(files|headers|instantiations|mutants|mistakes|tests|families|"
    r"architectures|cost models|problems on)\b"
)
# Pages that a script writes, or that tell what was seen of one commit.
WRITTEN = ("docs/reliability.md", "docs/api.md", "docs/ops.md", "docs/round_trips.md")
OF_THEIR_DAY = ("CHANGELOG.md", "notes/")
# Sentences about other code bases, about what was tried, and about what does not change with ours.
NOT_OURS = (
    "two files, four lines",  # docs/recipes.md: of the trial that it tells
    OPENED,  # test_the_way_of_a_call_is_as_long_as_the_page_says
)


def uncounted() -> Iterator[str]:
    stated = {claim() for claim in CLAIMS.values()}
    for page in pages.names():
        if page.startswith((*WRITTEN, *OF_THEIR_DAY)):
            continue
        text = " ".join(pages.prose(page).split())
        for found in COUNTED.finditer(text):
            around = text[max(0, found.start() - 30) : found.end() + 30]
            if not any(known in around for known in (*stated, *NOT_OURS)):
                yield f"{page}: ...{around}..."


def test_no_page_counts_what_nobody_checks() -> None:
    assert not list(uncounted()), "derive it (CLAIMS), or leave it out"


def rows_of(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((ROOT / "benchmarks" / "results" / name).read_text())[
        "rows"
    ]
    return rows


PEERS = {"aten::_weight_int4pack_mm_for_cpu": "aten", "F.linear": "F.linear"}
FILES = {
    "Zen 5": "cpu_zen_5_2_threads.json",
    "Emerald Rapids": "cpu_emerald_rapids_2_threads.json",
    "Cascade Lake": "cpu_cascade_lake_2_threads.json",
}


def cpu_ratio(rows: list[dict[str, Any]], peer: str, bits: int, group_size: int, m: int) -> float:
    """Our median over the peer's, both in bfloat16."""
    scheme = {"bits": bits, "group_size": group_size}
    times = {
        row["op"]: row["us"]
        for row in rows
        if row["dtype"] == "bfloat16"
        and row["M"] == m
        and (row["op"] == "F.linear" or scheme.items() <= row.items())
    }
    return float(times["fpA_intB_gemm"] / times[peer])


def test_ratios_on_cpus_are_medians_of_their_files() -> None:
    page = pages.text("docs/speed.md")
    table = re.findall(r"^\| ([A-Z][\w ]+)(?: \(.*\))?: `([\w:.]+)`.*?\|(.+)\|$", page, re.M)
    assert len(table) == 5
    for machine, peer, cells in table:
        rows = rows_of(FILES[machine])
        found = [f"{cpu_ratio(rows, PEERS[peer], 4, 128, m):.2f}" for m in (1, 4, 16, 64, 256)]
        assert [cell.strip() for cell in cells.split("|")] == found, (machine, peer)
    zen = rows_of(FILES["Zen 5"])
    int8 = [f"{cpu_ratio(zen, 'aten', 8, -1, m):.2f}" for m in (1, 4, 16, 64, 256)]
    assert f"on the Zen 5: {', '.join(int8)}." in " ".join(page.split())
    int4 = [cpu_ratio(zen, "aten", 4, 128, m) for m in (1, 4, 16, 64, 256)]
    dense = [cpu_ratio(zen, "F.linear", 4, 128, m) for m in (1, 256)]
    assert (
        f"takes {min(int4):.2f} to {max(int4):.2f} of the time of torch's own int4 product, and "
        f"{dense[0]:.2f} (one row) to {dense[1]:.2f} (256 rows)"
    ) in " ".join(page.split())


def test_awq_gemm_is_as_far_from_repacked_weights_as_the_pages_say() -> None:
    times = {
        (row["op"], row["dtype"], row["N"], row["K"], row["M"]): row["us"]
        for row in rows_of("awq_h200.json")
    }
    ratios = {
        where: us / times[("fpA_intB_gemm", *where)]
        for (op, *rest), us in times.items()
        if op == "awq_gemm" and (where := tuple(rest))
    }
    few = [ratio for where, ratio in ratios.items() if where[-1] <= 16]
    note, page = pages.text("notes/awq.md"), pages.text("docs/speed.md")
    near = sum(ratio <= 1.3 for ratio in few)
    assert f"Within {max(few):.2f} of `fpA_intB_gemm`" in note
    assert f"({near} of {len(few)} points within 1.3)" in note
    ranges = [[ratio for where, ratio in ratios.items() if where[-1] == m] for m in (32, 64, 128)]
    said = [f"{min(found):.2f} to {max(found):.2f}" for found in (few, *ranges)]
    assert (
        f"{said[0]} up to 16 rows, {said[1]} at 32, {said[2]} at 64 and {said[3]} at 128"
    ) in " ".join(page.split())
