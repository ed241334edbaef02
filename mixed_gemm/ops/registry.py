"""The table of the ops that take tensors, and their registration with torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from . import autocast, autograd, contract, flops, python_ops, vmap
from .families import FAMILIES
from .op import Op
from .sharding import Sharding

T = TypeVar("T")

OPS: tuple[Op, ...] = tuple(op for family in FAMILIES for op in family.OPS)
# The same and the ops in Python, which users do not call.
_ALL = (*OPS, *(part.op for part in python_ops.PARTS))


def _given(rule: Callable[[Op], T | str]) -> dict[str, T]:
    """The rules of one kind, by the name of their op; ops without one are left out."""
    found = {op.name: rule(op) for op in _ALL}
    return {name: x for name, x in found.items() if not isinstance(x, str)}


def register() -> None:
    """Tell torch all that the records say. Once, after the library was loaded."""
    python_ops.define()
    contract.register({op.name: op.fake for op in OPS if not isinstance(op.fake, str)})
    autograd.register(_given(lambda op: op.derivatives))
    autocast.register(_given(lambda op: op.autocast))
    vmap.register(_given(lambda op: op.vmap))
    flops.register(_given(lambda op: op.flops))


def shardings() -> dict[str, Sharding]:
    """How each op is called with DTensors, which ``distributed`` tells torch."""
    return _given(lambda op: op.sharding)
