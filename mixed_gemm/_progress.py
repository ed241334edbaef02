"""A progress bar on stderr: tqdm's, which tells the time left, when it is installed (transformers
and the extra ``cli`` bring it), else a count of our own."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeVar

T = TypeVar("T")
Progress = bool | Literal["force"]


def track(items: Sequence[T], description: str, progress: Progress) -> Iterable[T]:
    """Iterate with a bar. True shows it on a terminal only, "force" always, False never."""
    if not progress or (progress != "force" and not sys.stderr.isatty()):
        return items
    if importlib.util.find_spec("tqdm") is None:
        return _counted(items, description)
    bar: Iterable[T] = importlib.import_module("tqdm").tqdm(items, desc=description)
    return bar


def _counted(items: Sequence[T], description: str) -> Iterator[T]:
    for done, item in enumerate(items):
        print(f"\r{description} {done}/{len(items)}", end="", file=sys.stderr, flush=True)
        yield item
    print(f"\r{description} {len(items)}/{len(items)}", file=sys.stderr)
