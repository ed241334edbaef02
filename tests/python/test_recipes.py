"""The files that docs/recipes.md sends its reader to exist. What stands in its blocks are lists of
what somebody tried, toys among them, and is not looked at."""

from __future__ import annotations

import fnmatch
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENDINGS = (".h", ".cpp", ".cu", ".cuh", ".py", ".txt", ".md", ".sh")
BUILT = "build/"


def named(page: str) -> set[str]:
    """Every file and folder in the backticks of a page, outside its blocks."""
    spans = re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", page, flags=re.DOTALL))
    words = {word for span in spans for word in span.split()}
    return {word for word in words if "/" in word or (word.endswith(ENDINGS) and word[0] != ".")}


def here() -> list[str]:
    """Every file that git knows or is about to, and every folder of one, with a "/" in front."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    files = [Path(name) for name in listed if (ROOT / name).is_file()]
    return sorted({f"/{path}" for file in files for path in (file, *file.parents)})


@pytest.fixture(scope="module")
def paths() -> list[str]:
    try:
        return here()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"not a checkout of git: {error}")


def missing(page: str, paths: list[str]) -> list[str]:
    """The names of a page that are the end of no path; "<op>" stands for anything."""
    patterns = {name: "*/" + re.sub(r"<\w+>", "*", name).rstrip("/") for name in named(page)}
    return sorted(
        name
        for name, pattern in patterns.items()
        if not name.startswith(BUILT) and not fnmatch.filter(paths, pattern)
    )


def test_every_file_that_a_recipe_names_exists(paths: list[str]) -> None:
    page = (ROOT / "docs" / "recipes.md").read_text()
    assert len(named(page)) > 50
    assert missing(page, paths) == []


def test_a_file_that_does_not_exist_is_noticed(paths: list[str]) -> None:
    page = "`csrc/core/nowhere.h`, `csrc/ops/<op>/`, `python -m tools.pages`, `nowhere.py`, `.cu`"
    assert missing(page, paths) == ["csrc/core/nowhere.h", "nowhere.py"]
