"""The pages hang together: every link leads somewhere, every page is two links from the README at
most, the files that pages name exist, and what scripts write is up to date."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import pages

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


@pytest.mark.parametrize(
    "tool",
    [
        "compare_schemes.py",
        "draw_docs.py",
        "write_checkpoint_keys.py",
        "write_gains.py",
        "write_parallel.py",
        "write_quality.py",
        "write_serving.py",
    ],
)
def test_what_a_tool_writes_is_up_to_date(tool: str) -> None:
    if tool == "draw_docs.py" and "MIXED_GEMM_CORE_MODULE_DIR" not in os.environ:
        pytest.skip("the C++ core is not built: make build")
    run = check(tool)
    assert run.returncode == 0, f"{run.stdout}{run.stderr}: python tools/{tool}"


def test_the_table_of_the_readme_is_up_to_date() -> None:
    run = check("write_support_table.py")
    if run.returncode == 2:
        pytest.skip(run.stdout.strip())
    assert run.returncode == 0, f"{run.stdout}{run.stderr}: python tools/write_support_table.py"


def check(tool: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / tool), "--check"]
    core = os.environ.get("MIXED_GEMM_CORE_MODULE_DIR", "")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), core, *sys.path])}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_the_checks_see_a_page_that_is_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import compare_schemes

    page = tmp_path / "page.md"
    page.write_text(f"a\n{compare_schemes.BEGIN}\nold\n{compare_schemes.END}\nb\n")
    monkeypatch.setattr(compare_schemes, "PAGE", page)
    assert compare_schemes.main(["--check"]) == 1
    assert compare_schemes.main([]) == 0
    assert compare_schemes.main(["--check"]) == 0
    assert page.read_text().startswith("a\n") and page.read_text().endswith("\nb\n")
