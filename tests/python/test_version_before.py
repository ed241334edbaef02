"""Programs that were written for the version before run as they are: each public name is where it
was, and takes every argument that it took, at the same place and by the same keyword.

``tests/data/public_names.json`` says what there was (``tests/python/support/public_names.py``), and
``tests/data/quantize_calls.txt`` what came of calls of ``quantize_``
(``tests/python/support/quantize_calls.py``).
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Iterator
from typing import Any

import pytest
from support import public_names, quantize_calls

BEFORE: dict[str, Any] = json.loads(public_names.FILE.read_text())
NAMES = {
    f"{module}.{name}": (module, name, told)
    for module, names in BEFORE["names"].items()
    for name, told in names.items()
}
CALLS = dict(line.split(" -> ", 1) for line in quantize_calls.FILE.read_text().splitlines())
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
BY_NAME = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def parameters(signature: str) -> list[inspect.Parameter]:
    """The parameters that the text of a signature names."""
    function = eval(f"lambda {signature[1:-1]}: None")
    return list(inspect.signature(function).parameters.values())


def lacks(before: str | None, now: str | None) -> Iterator[str]:
    """Calls of the one signature that the other refuses or understands in another way."""
    if before is None or now is None:
        if before != now:
            yield f"its signature is {now}, it was {before}"
        return
    new = parameters(now)
    by_name = {x.name: x for x in new if x.kind in BY_NAME}
    takes = {x.kind for x in new}
    for place, old in enumerate(parameters(before)):
        if old.kind in (old.VAR_POSITIONAL, old.VAR_KEYWORD):
            if old.kind not in takes:
                yield f"it takes no {old} any more"
            continue
        if old.kind in POSITIONAL and old.VAR_POSITIONAL not in takes:
            here = new[place] if place < len(new) else None
            if here is None or here.kind not in POSITIONAL or here.name != old.name:
                yield f"its argument number {place} is not {old.name} any more"
        if old.kind in BY_NAME:
            found = by_name.get(old.name)
            if found is None and old.VAR_KEYWORD not in takes:
                yield f"it takes no keyword {old.name} any more"
            elif found is not None and repr(found.default) != repr(old.default):
                yield f"{found} was {old}"
    known = {x.name for x in parameters(before)}
    for x in new:
        asked = x.default is x.empty and x.kind in (*POSITIONAL, *BY_NAME)
        if asked and x.name not in known:
            yield f"it asks for {x.name}"


def differences(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """Say what a name had and lacks now, or has in another way."""
    if before["kind"] != now["kind"]:
        yield f"it is a {now['kind']}, it was a {before['kind']}"
        return
    yield from lacks(before.get("signature"), now.get("signature"))
    for name, signature in before.get("members", {}).items():
        if name not in now["members"]:
            yield f"it has no {name} any more"
        elif signature is not None:
            yield from (f"{name}: {text}" for text in lacks(signature, now["members"][name]))


@pytest.mark.parametrize("full", NAMES)
def test_a_name_takes_what_it_took(full: str) -> None:
    module, name, before = NAMES[full]
    if name == "MixedGemmConfig":
        pytest.importorskip("transformers", minversion="5.17", reason="optional: hf extra")
    thing = getattr(importlib.import_module(module), name)
    assert list(differences(before, public_names.described(thing))) == []


@pytest.mark.parametrize("full", [x for x, (_, _, told) in NAMES.items() if "path" in told])
def test_a_class_is_found_where_pickles_look_for_it(full: str) -> None:
    module, name, before = NAMES[full]
    if name == "MixedGemmConfig":
        pytest.importorskip("transformers", minversion="5.17", reason="optional: hf extra")
    there, _, path = before["path"].partition(":")
    found: Any = importlib.import_module(there)
    for part in path.split("."):
        found = getattr(found, part)
    assert found is getattr(importlib.import_module(module), name)


def test_every_command_takes_what_it_took() -> None:
    now = public_names.commands()
    for command, options in BEFORE["commands"].items():
        assert set(options) <= set(now.get(command, ())), command


@pytest.mark.parametrize("call", CALLS)
def test_quantize_makes_of_a_call_what_it_made(call: str) -> None:
    assert quantize_calls.outcome(call, quantize_calls.given()) == CALLS[call]


def test_the_calls_are_those_of_the_file() -> None:
    assert list(CALLS) == quantize_calls.CALLS
    taken = BEFORE["names"]["mixed_gemm"]["quantize_"]["signature"]
    for x in parameters(taken):
        assert x.name == "model" or any(f"{x.name}=" in call for call in CALLS), x.name


@pytest.mark.parametrize(
    ("before", "now", "text"),
    [
        ("(a, b=1)", "(a, b=1, c=2)", ""),
        ("(a, *, b=1)", "(a, *, d=None, b=1)", ""),
        ("(a, *, b=1)", "(a, **more)", ""),
        ("(a, b)", "(*args, **more)", ""),
        ("(a, b=1)", "(b=1, a=2)", "its argument number 0 is not a any more"),
        ("(a, b=1)", "(a, *, b=1)", "its argument number 1 is not b any more"),
        ("(a, *, b=1)", "(a, *, c=1)", "it takes no keyword b any more"),
        ("(a, *, b=1)", "(a, *, b=2)", "b=2 was b=1"),
        ("(a)", "(a, b)", "it asks for b"),
        ("(a, **more)", "(a, *, b=1)", "it takes no **more any more"),
        ("(a)", None, "its signature is None, it was (a)"),
    ],
)
def test_the_checker_sees_it(before: str, now: str | None, text: str) -> None:
    found = list(lacks(before, now))
    assert (text in found) if text else found == []


def test_the_checker_sees_members() -> None:
    class Before:
        size = 1

        def half(self, by: int = 2) -> float:
            return self.size / by

    class Now:
        def half(self, of: int = 2) -> float:
            return 1 / of

    Before.__module__ = Now.__module__ = "mixed_gemm.example"
    found = list(differences(public_names.described(Before), public_names.described(Now)))
    assert "it has no size any more" in found
    assert "half: it takes no keyword by any more" in found
