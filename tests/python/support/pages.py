"""The pages that a reader sees: README, docs/, notes/ and the files beside README; their links, and
the blocks of code in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
README = "README.md"
PLACES = ("*.md", "docs/*.md", "notes/*.md", "third_party/*/*.md")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def names() -> list[str]:
    """Every page, as a path from the root."""
    found = (path for place in PLACES for path in ROOT.glob(place))
    return sorted(str(path.relative_to(ROOT)) for path in found)


def text(page: str) -> str:
    return (ROOT / page).read_text()


def prose(page: str) -> str:
    """Without the blocks of code."""
    return FENCE.sub("", text(page))


def links(page: str) -> set[str]:
    """The files of the repository that a page links to, as paths from the root, without anchors."""
    found = set()
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if not re.match(r"[a-z]+:", target):
            path = (ROOT / page).parent / target.split("#")[0]
            found.add(str(path.resolve().relative_to(ROOT)))
    return found


@dataclass(frozen=True)
class Block:
    """A block of code: the n-th of its page in this language; "" is a shell."""

    page: str
    language: str
    index: int
    text: str

    @property
    def key(self) -> tuple[str, str, int]:
        return self.page, self.language, self.index


def blocks(page: str) -> list[Block]:
    found: list[Block] = []
    for language, content in FENCE.findall(text(page)):
        index = sum(block.language == language for block in found)
        found.append(Block(page, language, index, content))
    return found
