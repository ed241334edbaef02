"""A page that is written: which files it has, how the text of each is made, and whether it would
change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from benchmarks.pages import Part

from . import ROOT

# The text of a file as it stands -> as it should be.
Made = Callable[[str], str]


class Outcome(IntEnum):
    """The exit status of a command on one page."""

    GOOD = 0
    WOULD_CHANGE = 1
    CANNOT_TELL = 2


def _nothing() -> str:
    return ""


@dataclass(frozen=True)
class Page:
    """Files by their paths from the root, each with what makes its text.

    lacks: why this machine or this build cannot make the page; empty where it can.
    """

    files: Mapping[str, Made]
    lacks: Callable[[], str] = _nothing

    def settle(self, name: str, check: bool) -> Outcome:
        """Write the files, or with ``check`` only tell whether one of them would change."""
        if reason := self.lacks():
            print(f"{name}: not looked at: {reason}")
            return Outcome.CANNOT_TELL
        outcome = Outcome.GOOD
        for file, made in self.files.items():
            path = ROOT / file
            old = path.read_text(encoding="utf-8") if path.is_file() else ""
            text = made(old)
            told = "up to date" if text == old else "would change" if check else "written"
            print(f"{name}: {file}: {told}")
            if text == old:
                continue
            if check:
                outcome = Outcome.WOULD_CHANGE
            else:
                path.write_text(text, encoding="utf-8")
        return outcome


def whole(text: Callable[[], str]) -> Made:
    """The file is what ``text`` returns."""
    return lambda _: text()


def parts(**texts: Callable[[], str]) -> Made:
    """The file has texts by others, too: each of ours stands between the comments of its name, as
    ``benchmarks.pages.Part`` has them."""

    def made(page: str) -> str:
        for name, text in texts.items():
            page = Part(name).replaced(page, text())
        return page

    return made
