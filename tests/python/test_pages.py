"""The pages hang together: every link leads somewhere, every page is two links from the README at
most, the files that pages name exist, and what scripts write is up to date."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import pages

from tools.pages import NAMES, SLOW
from tools.pages import __main__ as command
from tools.pages import page as written_page
from tools.pages.page import Outcome

ROOT = pages.ROOT
TREES = ("csrc", "mixed_gemm", "tests", "tools", "benchmarks", "docs", "notes", "cmake", "examples")
PAGES = pages.names()
# Records of runs and of changes name what was there at their time.
RECORDS = ("docs/reliability.md", "CHANGELOG.md")
# A heading behind which a page names files of other code bases.
OF_OTHERS = "## What we took from others"
# What users name themselves, or bring along.
NOT_FILES = re.compile(r"^(build|\.venv|third_party/cutlass/include)/")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    assert [x for x in pages.links(page) if not (ROOT / x).exists()] == []


def test_every_page_is_two_links_from_the_readme() -> None:
    near = pages.links(pages.README)
    reached = {pages.README} | near
    for page in near & set(PAGES):
        reached |= pages.links(page)
    assert set(PAGES) - reached == set()


def test_the_readme_is_one_screen() -> None:
    assert len(pages.text(pages.README).splitlines()) <= 80


@pytest.mark.parametrize("page", [x for x in PAGES if x.startswith(("docs/", "notes/"))])
def test_a_page_begins_with_its_conclusion(page: str) -> None:
    """Or says in its first lines what it lists."""
    title, empty, *rest = pages.text(page).splitlines()
    assert title.startswith("# ") and empty == ""
    lists_only = ("docs/index.md", "docs/tour.md", "docs/api.md", "docs/recipes.md")
    if page not in (*lists_only, "docs/architecture.md"):
        assert re.match(r"(- )?\*\*.+", rest[0]), rest[0]


@pytest.mark.parametrize("page", [x for x in PAGES if x not in RECORDS])
def test_files_that_a_page_names_exist(page: str) -> None:
    """As a path from the root or from a folder below it."""
    named = re.findall(r"`([\w./-]+/[\w.-]+\.\w+)`", pages.prose(page).split(OF_OTHERS)[0])
    files = ["/" + str(x.relative_to(ROOT)) for place in TREES for x in (ROOT / place).rglob("*")]
    files += ["/" + x.name for x in ROOT.iterdir()]
    missing = {x for x in named if not any(file.endswith("/" + x) for file in files)}
    assert {x for x in missing if not NOT_FILES.search(x)} == set()


def test_the_tour_has_ten_questions_and_a_file_for_each() -> None:
    rows = [x for x in pages.text("docs/tour.md").splitlines() if x.startswith("| ")][1:]
    assert len(rows) == 10
    for row in rows:
        question, answer = (cell.strip() for cell in row.strip("|").split("|"))
        assert question.endswith("?")
        linked = re.findall(r"\]\(\.\./([^)]+)\)", answer)
        assert linked and all((ROOT / name).is_file() for name in linked), row


# Half an hour; quantization/test_architectures.py looks at a few of its rows.
UNCHECKED = {"architectures"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(x, marks=pytest.mark.slow) if x in SLOW else x
        for x in NAMES
        if x not in UNCHECKED
    ],
)
def test_a_written_page_is_up_to_date(name: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tools.pages", "--check", name],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if run.returncode == Outcome.CANNOT_TELL and "not looked at" in run.stdout:
        pytest.skip(run.stdout.strip())
    assert run.returncode == 0, f"{run.stdout}{run.stderr}: python -m tools.pages {name}"


def test_every_module_with_a_page_is_one_of_the_command() -> None:
    folder = ROOT / "tools" / "pages"
    written = {x.stem for x in folder.glob("*.py") if "\nPAGE = " in x.read_text()}
    assert written == set(NAMES) and set(SLOW) <= written


def test_a_check_sees_a_page_that_is_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(written_page, "ROOT", tmp_path)
    file = tmp_path / "a.txt"
    stale = "a\n<!-- new: written by x -->\n\nold\n\n<!-- end of new -->\nb\n"
    file.write_text(stale)
    written = written_page.Page({"a.txt": written_page.parts(new=lambda: "text")})
    assert written.settle("a", check=True) == Outcome.WOULD_CHANGE
    assert file.read_text() == stale
    assert written.settle("a", check=False) == Outcome.GOOD
    assert file.read_text() == stale.replace("old", "text")
    assert written.settle("a", check=True) == Outcome.GOOD
    told = [line.rpartition(": ")[2] for line in capsys.readouterr().out.splitlines()]
    assert told == ["would change", "written", "up to date"]


def test_a_page_that_cannot_be_made_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = written_page.Page({"a.txt": written_page.whole(lambda: "text")}, lambda: "no GPU")
    assert nowhere.settle("a", check=False) == Outcome.CANNOT_TELL
    assert capsys.readouterr().out == "a: not looked at: no GPU\n"


def test_comments_that_are_missing_are_an_error() -> None:
    with pytest.raises(ValueError, match="one part 'new', got 0"):
        written_page.parts(new=lambda: "text")("a\n")


def test_a_name_that_is_no_page_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["opss"])
    assert "no page opss: api, " in capsys.readouterr().err
