"""mixed_gemm/ is ordered: a room imports itself and rooms of lower ranks, also inside of functions,
and docs/imports.svg shows it. tools/import_graph.py holds the ranks and what is excepted."""

from __future__ import annotations

import ast
import graphlib
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from import_graph import (
    IMPORTS_NOTHING,
    RANK,
    ROOMS,
    ROOT,
    UPWARD,
    Import,
    between_rooms,
    imports,
    modules,
    room_of,
    statements,
)

from tools.pages import imports as drawn_imports

IMPORTS = imports()


def wrong(found: list[Import]) -> list[str]:
    """What does not go down."""
    return [
        str(item)
        for item in found
        if (importer := room_of(item.importer)) != (imported := room_of(item.imported))
        and not (RANK[importer] > RANK[imported] and importer not in IMPORTS_NOTHING)
        and not item.is_deliberate
    ]


def circles(found: list[Import]) -> list[str]:
    """Modules that import each other when they run: while they are imported, or in a function.

    Functions of integrations/ are left out: each of those folders hangs on a host, transformers or
    vLLM, which it imports when it is called.
    """
    graph: dict[str, set[str]] = {}
    for item in found:
        late = item.where == "function" and room_of(item.importer) == "integrations"
        if item.where != "types" and not late:
            graph.setdefault(item.importer, set()).add(item.imported)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_every_folder_and_module_is_a_room() -> None:
    assert {room_of(name) for name in modules()} == set(RANK)
    assert len(ROOMS) == len(RANK)
    assert len(IMPORTS) > 300


def test_imports_go_down() -> None:
    assert wrong(IMPORTS) == []


def test_no_modules_import_each_other() -> None:
    assert circles(IMPORTS) == []


def test_every_exception_is_still_needed() -> None:
    there = {(item.importer, item.imported) for item in IMPORTS}
    assert set(UPWARD) <= there
    assert all(RANK[room_of(a)] < RANK[room_of(b)] for a, b in UPWARD)


def test_the_command_imports_the_package_only_when_it_runs() -> None:
    early = [
        str(item)
        for item in IMPORTS
        if room_of(item.importer) == "cli"
        and room_of(item.imported) != "cli"
        and item.where == "module"
    ]
    assert early == []


def test_the_command_names_the_package_in_full() -> None:
    """As mixed_gemm_cli it has no parent that ``from ..`` could mean."""
    for name, path in modules().items():
        if room_of(name) == "cli":
            found = [node for node, _ in statements(ast.parse(path.read_text()), "module")]
            levels = [node.level for node in found if isinstance(node, ast.ImportFrom)]
            assert max(levels, default=0) <= 1, f"{name} has a relative import of its parent"


def test_the_picture_is_shown() -> None:
    (file,) = drawn_imports.PAGE.files
    assert Path(file).name in (ROOT / "docs" / "architecture.md").read_text()


# --- that the tests above would notice -----------------------------------------------------------


def tree(root: Path, **sources: str) -> list[Import]:
    """The imports of a package with these modules; ``ops__a`` is mixed_gemm/ops/a.py."""
    for name, source in sources.items():
        path = (root / "mixed_gemm").joinpath(*name.split("__")).with_suffix(".py")
        for folder in (path.parent, root / "mixed_gemm"):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "__init__.py").touch()
        path.write_text(source)
    return imports(root)


UP = "mixed_gemm.ops.a, line {line}, imports mixed_gemm.nn.b"


@pytest.mark.parametrize(
    ("source", "line", "where"),
    [
        ("from ..nn import b", 1, "module"),
        ("from ..nn.b import x", 1, "module"),
        ("import mixed_gemm.nn.b as b", 1, "module"),
        ("def f():\n    from mixed_gemm.nn import b", 2, "function"),
        ("class A:\n    async def f(self):\n        from ..nn.b import x", 3, "function"),
        ("if TYPE_CHECKING:\n    from ..nn.b import x", 2, "types"),
        ("try:\n    from ..nn import b\nexcept ImportError:\n    pass", 2, "module"),
    ],
)
def test_an_import_upward_is_found(tmp_path: Path, source: str, line: int, where: str) -> None:
    found = tree(tmp_path, ops__a=source, nn__b="from ..ops import a\nx = 1")
    assert wrong(found) == [UP.format(line=line)]
    assert [item.where for item in found if item.importer == "mixed_gemm.ops.a"] == [where]


def test_an_import_by_the_reference_is_found(tmp_path: Path) -> None:
    found = tree(tmp_path, reference__a="from .._library import path", _library="path = None")
    assert wrong(found) == ["mixed_gemm.reference.a, line 1, imports mixed_gemm._library"]


LATE = "def f():\n    from .a import x"


@pytest.mark.parametrize("source", ["from .a import x", LATE], ids=["early", "late"])
def test_a_circle_of_modules_is_found(tmp_path: Path, source: str) -> None:
    found = tree(tmp_path, ops__a="from . import b", ops__b=source)
    assert set(circles(found)) == {"mixed_gemm.ops.a", "mixed_gemm.ops.b"}


def test_types_and_late_imports_of_integrations_are_no_circle(tmp_path: Path) -> None:
    types = "if TYPE_CHECKING:\n    from .a import x"
    assert circles(tree(tmp_path, ops__a="from . import b", ops__b=types)) == []
    hosts = {"integrations__a": "from . import b", "integrations__b": LATE}
    assert circles(tree(tmp_path / "hosts", **hosts)) == []


def test_a_circle_of_rooms_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    up = Import("mixed_gemm.ops.gemm", "mixed_gemm.nn.linear", 1, "function")
    monkeypatch.setattr(drawn_imports, "imports", lambda: [*IMPORTS, up])
    with pytest.raises(ValueError, match=r"a circle: .*ops imports nn"):
        drawn_imports.draw()


def test_only_edges_that_others_imply_are_left_out() -> None:
    graph = {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    assert drawn_imports.without_detours(graph) == [("a", "b"), ("b", "c")]
    drawn = set(drawn_imports.without_detours(between_rooms(IMPORTS)))
    assert ("nn", "weights") in drawn and ("nn", "ops") not in drawn
