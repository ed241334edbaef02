"""Which class of ``mixed_gemm.nn`` holds a kind of weight. That package registers its classes here,
since weights import nothing that is built on them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from .tensor import QuantizedTensor

Module = TypeVar("Module", bound=type)

MODULES: dict[str, Any] = {}


def holds(name: str) -> Callable[[Module], Module]:
    """Register a class as what holds weights whose ``module`` is ``name``."""

    def register(cls: Module) -> Module:
        MODULES[name] = cls
        return cls

    return register


def module_of(weight: QuantizedTensor) -> Any:
    """The class of module that holds a weight, of any shape."""
    return MODULES[weight.module]
