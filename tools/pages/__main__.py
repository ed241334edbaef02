"""The command ``python -m tools.pages [--check] [NAME...]``."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from . import NAMES, SLOW
from . import __doc__ as about
from .page import Outcome


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 1 where a page would change, else 2 where a page that was named cannot be
    made here."""
    parser = argparse.ArgumentParser(
        "python -m tools.pages", description=about, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    slow = ", ".join(f"{name} ({time})" for name, time in SLOW.items())
    told = f"one of {', '.join(NAMES)}; only when named: {slow}"
    parser.add_argument("names", nargs="*", metavar="NAME", help=told)
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.names if name not in NAMES]:
        parser.error(f"no page {', '.join(unknown)}: {', '.join(NAMES)}")
    names = given.names or [name for name in NAMES if name not in SLOW]
    # All are imported before the first is made: some set variables that libraries read once.
    pages = {name: import_module(f"{__package__}.{name}").PAGE for name in names}
    outcomes = [page.settle(name, given.check) for name, page in pages.items()]
    if Outcome.WOULD_CHANGE in outcomes:
        return Outcome.WOULD_CHANGE
    return Outcome.CANNOT_TELL if given.names and Outcome.CANNOT_TELL in outcomes else Outcome.GOOD


if __name__ == "__main__":
    sys.exit(main())
