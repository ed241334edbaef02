"""Fields of a dataclass that are no values of their own: what they say follows from others, which
are stored in their place. ``dataclasses.replace``, ``fields`` and ``asdict`` know them still.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type)


def read_off(**answers: Callable[[Any], Any]) -> Callable[[Class], Class]:
    """Make properties of fields. The class is a dataclass that has an ``__init__`` of its own.

    Args:
        answers: field -> what it is, read off an instance.
    """

    def change(cls: Class) -> Class:
        for name, answer in answers.items():
            answer.__doc__ = f"``{name}``, as the class explains it."
            setattr(cls, name, property(answer))
        return cls

    return change
