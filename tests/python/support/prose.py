"""The prose of a source file: its docstrings and comments, each with the line where it begins.

python tests/python/support/prose.py FOLDER...    what a reader hears, file by file
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
C_LIKE = {".h", ".cpp", ".cu", ".cuh"}
SUFFIXES = {".py", ".sh", *C_LIKE}
# Directives to tools, which nobody reads aloud.
DIRECTIVE = re.compile(r"(type: ignore|noqa|fmt: |NOLINT|shellcheck|!)")
Text = tuple[int, str]


def docstrings(source: str) -> Iterator[Text]:
    """Docstrings of a module of Python, of its classes and of its functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text and isinstance(node.body[0], ast.Expr):
                yield node.body[0].lineno, text


def _lines_of_python(source: str) -> Iterator[tuple[int, bool, str]]:
    """(line, whether code stands before it, text) of each comment."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            is_behind = token.line[: token.start[1]].strip() != ""
            yield token.start[0], is_behind, token.string[1:]


def _lines_of(source: str, mark: str) -> Iterator[tuple[int, bool, str]]:
    """The same of a language whose comments begin with a mark, but for those within strings."""
    for number, line in enumerate(source.splitlines(), 1):
        before, found, text = line.partition(mark)
        if number == 1 and line.startswith("#!"):
            continue
        if found and before.count('"') % 2 == 0 and not before.endswith((":", "$", "{")):
            yield number, before.strip() != "", text


def comments(path: Path, source: str) -> Iterator[Text]:
    """Comments; lines that follow each other are one, a comment behind code is one of its own."""
    if path.suffix == ".py":
        lines = _lines_of_python(source)
    else:
        lines = _lines_of(source, "//" if path.suffix in C_LIKE else "#")
    begun, text, last = 0, "", -1
    for number, is_behind, line in lines:
        joins = number == last + 1 and not is_behind and text
        if joins:
            text = f"{text} {line.strip()}"
        else:
            if text:
                yield begun, text
            begun, text = number, line.strip()
        last = number
        if is_behind and not joins:
            yield begun, text
            text = ""
    if text:
        yield begun, text


def of_file(path: Path) -> list[Text]:
    """All prose of one file, in the order of its lines."""
    source = path.read_text()
    found = list(comments(path, source))
    if path.suffix == ".py":
        found += docstrings(source)
    return sorted(x for x in found if not DIRECTIVE.match(x[1]))


def files_of(room: str) -> list[Path]:
    """Source files below a folder of the repository, or the one file that is named."""
    path = ROOT / room
    if path.is_file():
        return [path]
    return sorted(x for x in path.rglob("*") if x.is_file() and x.suffix in SUFFIXES)


if __name__ == "__main__":
    for room in sys.argv[1:]:
        for path in files_of(room):
            print(f"=== {path.relative_to(ROOT)}")
            for number, text in of_file(path):
                print(f"{number}: {text}")
