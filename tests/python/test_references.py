"""Texts refer to what a reader of the repository can open: no tickets, drafts or folders of
whoever wrote them, and no page or file that is not there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Not texts of ours: data, generated pictures, records of runs, licences.
SKIPPED = re.compile(r"\.(json|csv|png|svg|safetensors|pt|txt)$|^LICENSE$|^tests/fuzz/corpus/")
OUTSIDE = {
    "a ticket": r"\bissues? #?\d+\b",
    "a draft": r"\bdesign\.md\b|\bdesign (section )?\d|\bseeds? \d{3}\b",
    "a section of a page that is not linked": r"\.md (section )?\d",
    "a folder of somebody's machine": r"(?<![\w.])/(work|home|root)/\w|\bshared/\w",
}
# Pages that belong to others, or are made by what mentions them.
OTHER_PAGES = {"table.md", "page.md"}


def texts() -> dict[str, str]:
    """Path -> text, of every file that git knows or is about to."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split("\n")  # fmt: skip
    names = [x for x in listed if x and not SKIPPED.search(x) and (ROOT / x).is_file()]
    return {x: (ROOT / x).read_text() for x in names if x != "tests/python/test_references.py"}


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    try:
        return texts()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"not a checkout of git: {error}")


def test_nothing_refers_to_what_is_not_here(found: dict[str, str]) -> None:
    hits = {
        f"{name}: {what}"
        for name, text in found.items()
        for what, pattern in OUTSIDE.items()
        if re.search(pattern, text, re.IGNORECASE)
    }
    assert hits == set()


def test_every_page_that_is_named_exists(found: dict[str, str]) -> None:
    missing = []
    for name, text in found.items():
        for page in set(re.findall(r"(?<![\w/.-])((?:[\w.-]+/)*[\w-]+\.md)\b", text)):
            folders = (ROOT, (ROOT / name).parent, ROOT / "docs", ROOT / ".github")
            places = [folder / page for folder in folders]
            if not any(p.is_file() for p in places) and Path(page).name not in OTHER_PAGES:
                missing.append(f"{name}: {page}")
    assert missing == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("as issue 6 asks", "a ticket"),
        ("see design.md", "a draft"),
        ("the CPU targets of design 8", "a draft"),
        ("Source: seeds 000 and 001", "a draft"),
        ("reliability.md 2.3", "a section of a page that is not linked"),
        ("in /work/x/y", "a folder of somebody's machine"),
        ("../shared/reference", "a folder of somebody's machine"),
    ],
)
def test_the_patterns_see_it(text: str, what: str) -> None:
    assert re.search(OUTSIDE[what], text, re.IGNORECASE)
