"""What a script writes into a page or a picture, or only compares with what is there (--check)."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def between(page: Path, begin: str, end: str, part: str) -> str:
    """The text of a page with another part between two markers."""
    head, rest = page.read_text(encoding="utf-8").split(begin)
    _, tail = rest.split(end)
    return f"{head}{begin}\n\n{part}\n\n{end}{tail}"


def write_or_check(file: Path, text: str, arguments: list[str]) -> int:
    """Write a file; with --check only say whether it would change, and return the exit status."""
    if arguments != ["--check"]:
        file.write_text(text, encoding="utf-8")
        return 0
    same = file.is_file() and file.read_text(encoding="utf-8") == text
    print(f"{file.name}: {'up to date' if same else 'would change'}")
    return int(not same)
