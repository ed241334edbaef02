"""The type of a row of ``key_table.TABLE``: what is done with a key of a quantization_config."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Use(str, Enum):
    """The ways to treat a key.

    APPLIED: the layers are read, or computed, by it.
    INERT: it changes no number that a model computes.
    TOLD: others round activations, keys or values by it; here those stay in their dtype, which a
        note says.
    REFUSED: a file that has it is not read, unless its value asks for nothing.
    """

    APPLIED = "applied"
    INERT = "changes nothing"
    TOLD = "told"
    REFUSED = "refused"


@dataclass(frozen=True)
class Values:
    """Some values of JSON.

    test: whether a value is one of them. words: which they are.
    """

    test: Callable[[Any], bool]
    words: str


ANY = Values(lambda value: True, "")
# How JSON says that something is not asked for.
NOTHING = Values(lambda value: value in (None, False, "", [], {}), "nothing")


def one_of(*allowed: str | int | bool) -> Values:
    """These values, in upper or lower case."""
    names = [_plain(value) for value in allowed]
    return Values(lambda value: _plain(value) in names, " or ".join(names))


def without(*parts: str) -> Values:
    """Strings that have none of these parts."""
    words = " or ".join(f"{part!r}" for part in parts)
    return Values(
        lambda value: isinstance(value, str) and not any(part in value for part in parts),
        f"a name without {words}",
    )


def at_least(least: int) -> Values:
    """Integers from ``least`` on."""
    return Values(
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= least,
        f"{least} or more",
    )


def _plain(value: Any) -> str:
    """As a name in lower case; that of a dtype without the package in front."""
    return shown(value).strip('"').lower().removeprefix("torch.")


def shown(value: Any) -> str:
    """A value as JSON has it, cut where it is long."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


@dataclass(frozen=True)
class Row:
    """One key.

    use: what becomes of it.
    why: the reason: of a key that is told, a sentence of what is not done; of others, the end of
        one.
    fine: of a key that is told or refused, the values that ask for nothing; of others those that
        are read. None (JSON's null) and an empty string are always fine.
    inside: the section of the table for the keys of an object in it, or of the objects in a list.
    each: it holds objects by name, and ``inside`` is for each of them.
    kept: of a key that is told, the values that ``save_checkpoint`` writes again.
    """

    use: Use
    why: str
    fine: Values = ANY
    inside: str = ""
    each: bool = False
    kept: Values | None = None


def applied(why: str, fine: Values = ANY, inside: str = "", each: bool = False) -> Row:
    return Row(Use.APPLIED, why, fine, inside, each)


def told(why: str, fine: Values = NOTHING, inside: str = "", kept: Values | None = None) -> Row:
    return Row(Use.TOLD, why, fine, inside, kept=kept)


def refused(why: str, fine: Values = NOTHING) -> Row:
    return Row(Use.REFUSED, why, fine)


def inert(why: str, names: str) -> dict[str, Row]:
    """Keys that change nothing for one reason.

    Args:
        names: with spaces between them.
    """
    return dict.fromkeys(names.split(), Row(Use.INERT, why))
