"""Who imports whom in mixed_gemm/: every import statement of every module, also those inside of
functions and under TYPE_CHECKING, and the order of rooms that they must keep.

A room is a folder of mixed_gemm/, or a module beside them. It imports itself and rooms of lower
ranks. tests/python/test_import_direction.py holds that, tools/pages/imports.py draws it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "mixed_gemm"


@dataclass(frozen=True)
class Room:
    name: str
    rank: int  # imports go to lower ones
    holds: str


ROOMS = (
    Room("_after_import", 0, "what runs when others import a module"),
    Room("_freed", 0, "gives freed memory back"),
    Room("_library", 0, "finds and loads libmixed_gemm.so"),
    Room("_progress", 0, "the bar on stderr"),
    Room("reference", 0, "what the ops must compute"),
    Room("ops", 1, "torch.ops in Python, their rules"),
    Room("weights", 2, "schemes, quantized tensors"),
    Room("nn", 3, "Linear, Conv2d"),
    Room("formats", 4, "checkpoints, codecs"),
    Room("quantization", 5, "quantize_, methods"),
    Room("selection", 5, "plan, tune, bench"),
    Room("distributed", 5, "weights and models in shards"),
    Room("parallel", 6, "its public names"),
    Room("doctor", 6, "env(), what runs here and why not"),
    Room("integrations", 6, "transformers, vLLM"),
    Room("__init__", 7, "the public names"),
    Room("cli", 8, "the command mixed-gemm"),
)
RANK = {room.name: room.rank for room in ROOMS}
# From where an import of ours may come at all; reference must stay a second opinion.
IMPORTS_NOTHING = ("reference", "_after_import", "_freed", "_library", "_progress")
# Modules of a lower room that may import from a higher one, when they are called, and why: none.
UPWARD: dict[tuple[str, str], str] = {}


@dataclass(frozen=True)
class Import:
    importer: str  # dotted names of modules
    imported: str
    line: int
    where: str  # "module": when it is imported; "function": when that is called; "types": never

    def __str__(self) -> str:
        return f"{self.importer}, line {self.line}, imports {self.imported}"

    @property
    def is_deliberate(self) -> bool:
        return (self.importer, self.imported) in UPWARD and self.where != "module"


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def modules(root: Path = ROOT) -> dict[str, Path]:
    """Dotted name -> file, of every module of the package in ``root``."""
    found = {}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(root: Path = ROOT) -> list[Import]:
    """All imports of modules of the package by others of it.

    ``from .a import b`` imports the module ``a.b`` if there is one, else ``a``. That Python imports
    the parents of a package as well is left out: every module would import ``mixed_gemm``.
    """
    files = modules(root)
    found = []
    for module, path in files.items():
        is_package = path.name == "__init__.py"
        package = module.split(".") if is_package else module.split(".")[:-1]
        for node, where in statements(ast.parse(path.read_text(encoding="utf-8")), "module"):
            for name in named(node, package):
                imported = next((x for x in (name, name.rpartition(".")[0]) if x in files), None)
                if imported is not None:
                    found.append(Import(module, imported, node.lineno, where))
    return found


def statements(node: ast.AST, where: str) -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
    for child in ast.iter_child_nodes(node):
        inside = where
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            inside = "function"
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            inside = "types"
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child, where
        yield from statements(child, inside)


def named(node: ast.Import | ast.ImportFrom, package: list[str]) -> list[str]:
    """The full names that a statement in a module of ``package`` brings in."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    parents = package[: len(package) - node.level + 1] if node.level else []
    source = ".".join([*parents, *([node.module] if node.module else [])])
    return [f"{source}.{alias.name}" for alias in node.names]


def between_rooms(found: Iterable[Import]) -> dict[str, set[str]]:
    """Room -> the rooms it imports when it runs: without types and without what UPWARD lists."""
    graph: dict[str, set[str]] = {room.name: set() for room in ROOMS}
    for item in found:
        importer, imported = room_of(item.importer), room_of(item.imported)
        if importer != imported and item.where != "types" and not item.is_deliberate:
            graph.setdefault(importer, set()).add(imported)
    return graph
