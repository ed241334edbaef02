"""Every public name of the package, with what it can be called with: what
tests/data/public_names.json holds of the version before, so that a change is seen to take no name
and no keyword away.

    python tests/python/support/public_names.py > tests/data/public_names.json

A name is public where a module's ``__all__`` has it, and a command or an option where
``mixed_gemm.cli`` takes it. The file is written anew only for a release: until then it says what
programs that were written before rely on.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

FILE = ROOT / "tests" / "data" / "public_names.json"
SIMPLE = (bool, int, float, str, type(None))  # defaults whose repr says all of them


def lists() -> dict[str, list[str]]:
    """Module -> its ``__all__``, for every module of the package that has one."""
    package = ROOT / "mixed_gemm"
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted(package.rglob("*.py"))
        if "\n__all__" in path.read_text()
    ]
    return {name: list(importlib.import_module(name).__all__) for name in names}


class _Default:
    """A default as the file has it: its repr, or "..." for an object."""

    def __init__(self, value: Any) -> None:
        parts = value if isinstance(value, tuple) else (value,)
        self._text = repr(value) if all(isinstance(x, SIMPLE) for x in parts) else "..."

    def __repr__(self) -> str:
        return self._text


def signature_of(function: Callable[..., Any]) -> str | None:
    """Parameters and their defaults as Python writes them; None where it knows no signature."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    plain = [
        x.replace(
            annotation=x.empty, default=x.default if x.default is x.empty else _Default(x.default)
        )
        for x in signature.parameters.values()
    ]
    return str(inspect.Signature(plain))


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """Public names that classes of the package define, with what stands there."""
    for base in reversed(cls.__mro__):
        if base.__module__.split(".")[0] == "mixed_gemm":
            for name, value in vars(base).items():
                if not name.startswith("_"):
                    yield name, value
    if dataclasses.is_dataclass(cls):
        yield from ((x.name, None) for x in dataclasses.fields(cls))


def _of_class(cls: type) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in _members(cls):
        is_method = isinstance(value, staticmethod | classmethod) or inspect.isfunction(value)
        members[name] = signature_of(getattr(cls, name)) if is_method else None
    return {
        "kind": "class",
        "path": f"{cls.__module__}:{cls.__qualname__}",
        "signature": signature_of(cls),
        "members": members,
    }


def described(thing: Any) -> dict[str, Any]:
    """Describe one name as the file does."""
    if inspect.isclass(thing):
        return _of_class(thing)
    if callable(thing) and typing.get_origin(thing) is None:
        return {"kind": "function", "signature": signature_of(thing)}
    return {"kind": "module" if inspect.ismodule(thing) else "constant"}


def commands() -> dict[str, list[str]]:
    """Command of ``mixed-gemm`` -> its options and arguments."""
    import typer.main

    from mixed_gemm.cli.app import app

    group: Any = typer.main.get_command(app)
    return {
        name: sorted(x for p in command.params for x in (*p.opts, *p.secondary_opts))
        for name, command in sorted(group.commands.items())
    }


def recorded() -> dict[str, Any]:
    """All that the file holds."""
    return {
        "names": {
            module: {
                name: described(getattr(importlib.import_module(module), name))
                for name in sorted(names)
            }
            for module, names in sorted(lists().items())
        },
        "commands": commands(),
    }


if __name__ == "__main__":
    print(json.dumps(recorded(), indent=1, sort_keys=True))
