"""A public docstring has a first sentence, names every argument, and says the shape of every tensor
and the errors that a call can raise. This module tells what one lacks.

An ``Args:`` or ``Attributes:`` section has entries ``name: text``, several names before one colon
(``bits, group_size: as in plan``) and several entries in a line, each behind the full stop of the
one before. "The rest as in :func:`other`", "arguments and errors as in ..." stand for what that one
says.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

SECTIONS = ("Args", "Attributes", "Parts", "Returns", "Raises", "Source")
# Functions of ours that exist to raise: their callers can.
RAISERS = re.compile(r"(wrong_|check_|refuse_|require)\w*$|^(require|refined|kind_of|pair)$")
NAMES = r"[a-zA-Z_]\w*(?:, [a-zA-Z_]\w*)*"
ENTRY = re.compile(rf"(?:^ *|(?<=[.;)]) )({NAMES}): ", re.MULTILINE)
REFERENCE = re.compile(
    r"\b(arguments|the rest|errors|the others)\b[^.;]{0,40}\b(as in|those of|as)\s+[`:]",
    re.IGNORECASE,
)
SHAPE = re.compile(r"``\[[^`]*\]|shape|as ``|of (?:its|the) (?:weight|tensor)")


def sections(doc: str) -> dict[str, str]:
    """Heading -> text; the part before the first heading is under ""."""
    parts = re.split(rf"^({'|'.join(SECTIONS)}):\s*", doc, flags=re.MULTILINE)
    found = {"": parts[0]}
    for heading, text in zip(parts[1::2], parts[2::2], strict=True):
        found[heading] = found.get(heading, "") + text
    return found


def entries(text: str) -> set[str]:
    """Names that a section of arguments explains."""
    found = {name for group in ENTRY.findall(text) for name in group.split(", ")}
    return found - {"None", "True", "False"}


def parameters(thing: Any) -> list[inspect.Parameter]:
    signature = inspect.signature(thing)
    return [p for p in signature.parameters.values() if p.name not in ("self", "cls")]


def source_of(function: Any) -> ast.AST | None:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError, SyntaxError):
        return None


def can_raise(function: Any) -> bool:
    """Whether its own code has a raise, or calls what exists to raise and does not handle it."""
    tree = source_of(function)
    nodes = list(ast.walk(tree)) if tree else []
    handled = {
        id(inner)
        for node in nodes
        if isinstance(node, ast.Try) and node.handlers
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in nodes:
        if id(node) in handled:
            continue
        if isinstance(node, ast.Raise):
            name = getattr(getattr(node.exc, "func", node.exc), "id", "")
            if node.exc is not None and name not in ("NotImplementedError", "AttributeError"):
                return True
        if isinstance(node, ast.Call):
            called = node.func
            name = getattr(called, "attr", getattr(called, "id", ""))
            if RAISERS.match(name):
                return True
    return False


def lacks(thing: Any, *, doc: str | None = None) -> Iterator[str]:
    """Tell what the docstring of a function or method lacks.

    ``doc`` is the docstring that counts, where it is not that of ``thing``: of a constructor it is
    the one of the class.
    """
    text = inspect.cleandoc((thing.__doc__ if doc is None else doc) or "")
    if not text:
        yield "no docstring"
        return
    found = sections(text)
    yield from _first_sentence(found[""])
    yield from _arguments(thing, text, found)
    tensors = [p.name for p in parameters(thing) if "Tensor" in str(p.annotation)]
    if tensors and not SHAPE.search(text) and not REFERENCE.search(text):
        yield f"no shape of {', '.join(tensors)}"
    if can_raise(thing) and "Raises" not in found and not REFERENCE.search(text):
        yield "no Raises, and it can raise"


def _first_sentence(text: str) -> Iterator[str]:
    paragraph = text.strip().split("\n\n")[0]
    if not paragraph.rstrip().endswith((".", ":", "::")):
        yield "its first paragraph is no sentence"


def _arguments(thing: Any, text: str, found: dict[str, str]) -> Iterator[str]:
    names = {p.name for p in parameters(thing)}
    listed = entries(found.get("Args", ""))
    if unknown := listed - names:
        yield f"Args that it has not: {', '.join(sorted(unknown))}"
    said = listed | entries(found.get("Attributes", ""))
    missing = {x for x in names - said if "Args" in found or not re.search(rf"\b{x}\b", text)}
    if missing and not REFERENCE.search(text):
        yield f"arguments that it does not explain: {', '.join(sorted(missing))}"


def lacks_of_class(cls: type) -> Iterator[tuple[str, str]]:
    """(where, what is lacking), for a class and the methods that it has from classes of ours: where
    is the class that defines it, and the method."""
    here = cls.__name__
    own = inspect.cleandoc(cls.__doc__ or "")
    if not own or own.startswith(f"{cls.__name__}("):  # dataclasses write that one
        yield here, "no docstring"
        return
    for lack in (*_first_sentence(sections(own)[""]), *_constructor(cls, own)):
        yield here, lack
    for name, (owner, member) in sorted(_members(cls).items()):
        where = f"{owner.__name__}.{name}"
        if isinstance(member, property):
            if not member.fget.__doc__:
                yield where, "no docstring"
            continue
        function = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        for lack in lacks(function, doc=_inherited_doc(cls, name)):
            yield where, lack


def _constructor(cls: type, own: str) -> Iterator[str]:
    made = cls.__dict__.get("__init__")
    if getattr(cls, "_is_protocol", False):
        return
    if "__dataclass_params__" in vars(cls):
        names = {field.name for field in dataclasses.fields(cls) if field.init}
        found = sections(own)
        said = entries(found.get("Args", "") + "\n" + found.get("Attributes", ""))
        missing = {x for x in names - said if not re.search(rf"\b{x}\b", own)}
        if missing:
            yield f"fields that it does not explain: {', '.join(sorted(missing))}"
        if unknown := said - names - set(_members(cls)) - set(dir(cls)):
            yield f"fields that it has not: {', '.join(sorted(unknown))}"
        return
    if made is not None:
        yield from lacks(made, doc=own)
    told = entries(sections(own).get("Attributes", ""))
    kept = set(dir(cls)) | {
        x for base in cls.__mro__ for x in vars(base).get("__annotations__", {})
    }
    if unknown := {x for x in told - kept if made is None or f"self.{x} =" not in _text(made)}:
        unknown = {x for x in unknown if f"self.{x}:" not in _text(made)}
        if unknown:
            yield f"attributes that it has not: {', '.join(sorted(unknown))}"


def _text(function: Any) -> str:
    return "" if function is None else inspect.getsource(function)


def _members(cls: type) -> dict[str, tuple[type, Any]]:
    """Public methods and properties that classes of ours define, and which does."""
    found: dict[str, tuple[type, Any]] = {}
    for base in cls.__mro__:
        if not base.__module__.startswith("mixed_gemm"):
            continue
        for name, member in vars(base).items():
            is_method = isinstance(member, (classmethod, staticmethod, property))
            if name.startswith("_") or not (is_method or inspect.isfunction(member)):
                continue
            found.setdefault(name, (base, member))
    return found


def _inherited_doc(cls: type, name: str) -> str:
    """The docstring of a method, or of the one that it overrides."""
    for base in cls.__mro__:
        member = vars(base).get(name)
        function = getattr(member, "__func__", member)
        if function is not None and function.__doc__:
            return str(function.__doc__)
    return ""
