"""The output of every command: tables or one JSON object on stdout, everything else on stderr;
errors as one text and exit status 1.
"""

from __future__ import annotations

import functools
import io
import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import typer

if TYPE_CHECKING:
    from rich.console import Console

P = ParamSpec("P")
T = TypeVar("T")
# The library raises these for a reason that the user can do something about; torch's
# OutOfMemoryError is a RuntimeError. Other kinds come from libraries, and say little by themselves.
EXPECTED = (ValueError, TypeError, RuntimeError, ImportError, OSError, MemoryError)
UNEXPECTED = (
    "Hint: nobody foresaw this; mixed-gemm --traceback COMMAND ... shows where it came from"
)
USAGE = (typer.Exit, typer.Abort, typer.BadParameter)
PIPE_WIDTH = 160  # columns of a table that no terminal limits

state = {"traceback": False}  # set by the option of the same name


def _console(stderr: bool) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(
        stderr=stderr, width=None if stream.isatty() else PIPE_WIDTH, highlight=False, markup=False
    )


def say(text: str) -> None:
    """Print a line on stdout, as it is."""
    print(text)


def note(text: str) -> None:
    """Print a line on stderr."""
    print(text, file=sys.stderr)


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], left: int = 1
) -> None:
    """Make a table whose first ``left`` columns are aligned left, the others right."""
    from rich.table import Table

    table = Table(title=title or None, title_justify="left")
    for index, name in enumerate(columns):
        table.add_column(name, justify="left" if index < left else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(str, row))
    _console(stderr=False).print(table)


def refuse_to_overwrite(path: Path, force: bool) -> None:
    """Raise FileExistsError when something is at ``path`` and ``force`` is False, or when it is no
    regular file; NotADirectoryError or PermissionError where nothing can be written there. For
    those who work before they write."""
    if not path.parent.is_dir():
        raise NotADirectoryError(f"{path} cannot be written: {path.parent} is no folder")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise PermissionError(f"{path} cannot be written: {path.parent} may not be written to")
    if path.exists() and not path.is_file():
        raise FileExistsError(f"{path} is no regular file")
    if not force and os.path.lexists(path):
        raise FileExistsError(f"{path} exists. Hint: --force replaces it")


def replace_file(path: Path, text: str) -> None:
    """Write ``path`` in one step: whatever ends the process, it is the old file or the new one.

    Raises:
        OSError: it cannot be written; the old file stays.
    """
    from mixed_gemm.formats.durable import write_new_file

    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    write_new_file(beside, [text.encode()])
    try:
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def reports_errors(command: Callable[P, T]) -> Callable[P, T]:
    """Turn an exception into "error: ..." on stderr and exit status 1, with its kind and
    :data:`UNEXPECTED` where it is none of :data:`EXPECTED`, and show warnings as one line.
    ``mixed-gemm --traceback`` lets exceptions through."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        for stream in (sys.stdout, sys.stderr):  # names of files may be no text at all
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            try:
                return command(*args, **kwargs)
            except Exception as error:
                # typer's own: how a command ends, and wrong usage, which has a text of its own
                if state["traceback"] or isinstance(error, USAGE):
                    raise
                _console(stderr=True).print(
                    f"error: {_text(error)}", style="bold red", soft_wrap=True
                )
                raise typer.Exit(1) from error

    return wrapped


def _text(error: Exception) -> str:
    text = str(error) or type(error).__name__
    if not isinstance(error, EXPECTED):
        return f"{type(error).__name__}: {text}. {UNEXPECTED}"
    # The stable ABI puts "mixed_gemm::op, file:line" and a C++ stack around what matters.
    return text.split("\nException raised from", 1)[0]


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    note(f"warning: {message}")
