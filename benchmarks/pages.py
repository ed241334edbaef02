"""Parts of README.md and docs/ that scripts write, between two comments. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def markdown(header: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Return a table, and the empty line after it; nothing when there are no rows."""
    cells = [list(header), *map(list, rows)]
    if len(cells) == 1:
        return []
    cells.insert(1, ["---"] * len(cells[0]))
    return [*("| " + " | ".join(row) + " |" for row in cells), ""]


@dataclass(frozen=True)
class Part:
    """The text between ``<!-- NAME: ... -->`` and ``<!-- end of NAME -->`` on one page."""

    name: str

    @property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(
            rf"(<!-- {self.name}: [^\n]*-->\n\n).*?(\n\n<!-- end of {self.name} -->)", re.DOTALL
        )

    def replaced(self, page: str, text: str) -> str:
        """Find the comments. Raises: ValueError when they are not there, once each."""
        changed, count = self.pattern.subn(lambda found: f"{found[1]}{text}{found[2]}", page)
        if count != 1:
            raise ValueError(f"the page must have one part {self.name!r}, got {count}")
        return changed

    def page(self, root: Path = ROOT) -> Path:
        """Find the page that has it.

        Raises:
            ValueError: none has, or several have.
        """
        pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
        found = [page for page in pages if page.exists() and self.pattern.search(page.read_text())]
        if len(found) != 1:
            raise ValueError(
                f"one page must have the part {self.name!r}, got {list(map(str, found))}"
            )
        return found[0]
