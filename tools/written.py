"""The common part of the scripts that write pages and pictures: write a file, or only look whether
it would change; and put a text between two comments of a page."""

from __future__ import annotations

from pathlib import Path


def settle(path: Path, text: str, arguments: list[str]) -> int:
    """The exit status: 1 where ``arguments`` are ``--check``, which writes nothing, and the file
    would change."""
    if arguments == ["--check"]:
        same = path.is_file() and path.read_text(encoding="utf-8") == text
        print(f"{path.name}: {'up to date' if same else 'would change'}")
        return int(not same)
    path.write_text(text, encoding="utf-8")
    return 0


def with_part(path: Path, begin: str, part: str, end: str) -> str:
    """The page with ``part`` between the comments ``begin`` and ``end``.

    Raises:
        ValueError: they are not there, once each and in this order.
    """
    head, rest = path.read_text(encoding="utf-8").split(begin)
    _, tail = rest.split(end)
    return f"{head}{begin}\n\n{part}\n\n{end}{tail}"
