"""A progress bar on stderr: rich's when it is installed, else a small one of our own."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeVar

T = TypeVar("T")
Progress = bool | Literal["force"]
_WIDTH = 30


def track(items: Sequence[T], description: str, progress: Progress) -> Iterable[T]:
    """Iterate with a bar. True shows it on a terminal only, "force" always, False never."""
    if not progress or (progress != "force" and not sys.stderr.isatty()):
        return items
    if importlib.util.find_spec("rich") is None:
        return _plain(items, description)
    bar = importlib.import_module("rich.progress")
    terminal = importlib.import_module("rich.console")
    console = terminal.Console(stderr=True, force_terminal=True if progress == "force" else None)
    shown: Iterable[T] = bar.track(items, description, console=console)
    return shown


def _plain(items: Sequence[T], description: str) -> Iterator[T]:
    total = len(items)

    def draw(done: int) -> None:
        filled = _WIDTH * done // max(total, 1)
        bar = "#" * filled + "." * (_WIDTH - filled)
        sys.stderr.write(f"\r{description} [{bar}] {done}/{total}")
        sys.stderr.flush()

    draw(0)
    for done, item in enumerate(items, 1):
        yield item
        draw(done)
    sys.stderr.write("\n")
