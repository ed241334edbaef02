"""One signature for functions of the same arguments: the exact result, its bound, and both at
once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
Result = TypeVar("Result")


def same_arguments(
    of: Callable[P, Any],
) -> Callable[[Callable[..., Result]], Callable[P, Result]]:
    """Give a function the signature of ``of``, for readers, ``help()`` and mypy."""

    def give(function: Callable[..., Result]) -> Callable[P, Result]:
        function.__signature__ = inspect.signature(of)  # type: ignore[attr-defined]
        return cast("Callable[P, Result]", function)

    return give


def bound_arguments(of: Callable[..., Any], *operands: Any, **options: Any) -> dict[str, Any]:
    """The arguments of a call of ``of`` by name, with its defaults.

    Raises:
        TypeError: they do not fit its signature.
    """
    bound = inspect.signature(of).bind(*operands, **options)
    bound.apply_defaults()
    return dict(bound.arguments)
