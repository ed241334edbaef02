"""A thing of vLLM that we rely on, and whether the vLLM that is installed has it."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["fields", "parameters", "attributes", "members", "strings"]


@dataclass(frozen=True)
class Need:
    """One thing of vLLM.

    Attributes:
        module: where it is imported from.
        name: in the module; a method by "Class.method".
        kind: what ``items`` are. "fields": of a dataclass, all that there are. "parameters": of a
            function, in order, all that there are. "attributes": what a method sets on ``self``.
            "members": of a class or a module; none: that it is there. "strings": of a function, in
            a row.
        items: their names.
        more: fields or attributes that a release may have beside them, and that we know.
        optional: a release may be without it, and loses nothing by that.
    """

    module: str
    name: str
    kind: Kind
    items: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    optional: bool = False


def call(module: str, name: str, items: str) -> Need:
    """The parameters of a function.

    Args:
        module, name: where it is. items: all parameters in their order, with spaces between them.
    """
    return Need(module, name, "parameters", tuple(items.split()))


def lacking(need: Need, found: tuple[str, ...] | None) -> list[str]:
    """List what is otherwise than ``need`` says, in words.

    Args:
        found: fields, parameters and so on that there are; None where the thing is not there.
    """
    where = f"{need.module}.{need.name}"
    if found is None:
        return [] if need.optional else [f"vLLM has no {where}"]
    if need.kind in ("fields", "parameters"):
        ordered = need.kind == "parameters"
        if found == need.items if ordered else set(found) - set(need.more) == set(need.items):
            return []
        return [f"{where} has the {need.kind} {', '.join(found)}, not {', '.join(need.items)}"]
    if missing := [item for item in need.items if item not in found]:
        return [f"{where} has no {', '.join(missing)} among its {need.kind}"]
    return []


def found_in_vllm(need: Need) -> tuple[str, ...] | None:
    """Return what the vLLM that is installed has, for :func:`lacking`."""
    try:
        thing: Any = importlib.import_module(need.module)
        for part in need.name.split("."):
            thing = getattr(thing, part)
    except (ImportError, AttributeError):
        return None
    code = getattr(getattr(thing, "__func__", thing), "__code__", None)
    if need.kind == "fields":
        return tuple(field.name for field in dataclasses.fields(thing))
    if need.kind == "parameters":
        return tuple(inspect.signature(getattr(thing, "__func__", thing)).parameters)
    if need.kind == "attributes":
        return tuple(code.co_names) if code is not None else ()
    if need.kind == "strings":
        rows = [x for x in code.co_consts if isinstance(x, tuple)] if code is not None else []
        return next((x for x in rows if set(need.items) <= set(x)), ())
    return tuple(dir(thing))


def lacking_in_vllm(need: Need) -> list[str]:
    """List what the vLLM that is installed has otherwise. A field more is no reason here: each
    layer is asked whether it is set (:func:`unknown_fields`)."""
    found = found_in_vllm(need)
    if need.kind == "fields" and found is not None:
        found = tuple(x for x in found if x in need.items)
    return lacking(need, found)
