"""The table of rules of torch's operators for a quantized weight or a view of one, and who answers
an operator that has none. ``dispatch``, ``rows`` and ``collectives`` fill the table, ``dense`` has
the answer to all others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Rule = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
_RULES: dict[Any, Rule] = {}
_OTHERS: list[Rule] = []  # the one that answers operators without a rule


def rule(*ops: Any) -> Callable[[Rule], Rule]:
    """Register how ``ops`` treat a quantized weight."""

    def register(function: Rule) -> Rule:
        _RULES.update(dict.fromkeys(ops, function))
        return function

    return register


def for_all_others(function: Rule) -> Rule:
    """Register the answer to every operator that has no rule."""
    _OTHERS[:] = [function]
    return function


def answer(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The answer to one operator, some of whose arguments are quantized weights."""
    found = _RULES.get(func)
    if found is not None:
        return found(func, args, kwargs)
    # Operators that are made of others come as they are where no autograd stands before, which is
    # so for tensors of inference mode: its parts may have rules.
    parts = func.decompose(*args, **kwargs) if hasattr(func, "decompose") else NotImplemented
    return _OTHERS[0](func, args, kwargs) if parts is NotImplemented else parts
