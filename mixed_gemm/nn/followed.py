"""A module whose ``forward`` multiplies by the plain parts of its weight, whatever becomes of the
parameter.

Modules hold ``plain_weight`` and ``plain_bias`` beside their parameters, as ordinary attributes, so
that a graph of torch.compile has plain tensors for inputs (``weights.plain``). What replaces a
parameter brings both in line: assignment and deletion, ``_apply``, unpickling, code that writes
straight into ``_parameters`` (``torch.func.functional_call``, accelerate), and
``torch.utils.swap_tensors``.
"""

from __future__ import annotations

import weakref
from typing import Any, ClassVar

from torch import nn
from torch.compiler import is_dynamo_compiling

from ..weights.tensor import QuantizedTensor

# Attributes that follow the parameters, so that no copy of a module has them.
FOLLOWING = ("plain_weight", "plain_bias", "_followed", "_set_aside", "piece")


class FollowedParameters(dict[str, Any]):
    """The dictionary of a module's parameters, which tells the module when one is replaced."""

    owners: list[weakref.ref[Any]]  # there are several after copy.copy, which shares this dict

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        self._tell(name)

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self._tell(name)

    def pop(self, name: str, *default: Any) -> Any:
        found = super().pop(name, *default)
        self._tell(name)
        return found

    def update(self, *others: Any, **more: Any) -> None:
        super().update(*others, **more)
        self._tell("weight")

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]
        self.update(other)
        return self

    def setdefault(self, name: str, default: Any = None) -> Any:
        found = super().setdefault(name, default)
        self._tell(name)
        return found

    def popitem(self) -> tuple[str, Any]:
        name, value = super().popitem()
        self._tell(name)
        return name, value

    def clear(self) -> None:
        super().clear()
        self._tell("weight")

    def _tell(self, name: str) -> None:
        if name in ("weight", "bias"):
            for owner in self.owners:
                module = owner()
                if module is not None:
                    module.follow_weight()

    def owned_by(self, module: Any) -> None:
        """Tell ``module`` by its method ``follow_weight`` from now on."""
        alive = [owner for owner in self.owners if owner() not in (None, module)]
        self.owners = [*alive, weakref.ref(module)]

    def __reduce__(self) -> Any:
        return dict, (dict(self),)  # a module that is unpickled follows its dict again


class FollowsWeight(nn.Module):
    """A base of modules with a quantized ``weight``.

    Attributes:
        plain_weight: ``weight.plain()`` while ``weight`` and ``bias`` are parameters and the weight
            is quantized, else None; ``forward`` multiplies by it.
        plain_bias: the parameter ``bias``, or None.
    """

    parameter_names: ClassVar[tuple[str, ...]] = ("weight", "bias")
    plain_weight: Any = None
    plain_bias: Any = None
    _followed: Any = None  # the parameter that plain_weight is of
    _set_aside: Any = None  # plain_weight while torch.compile traces another weight

    def follow_weight(self) -> None:
        """Bring ``plain_weight`` and ``plain_bias`` in line with the parameters there are now."""
        here = self.__dict__
        parameters = here.get("_parameters", {})
        if is_dynamo_compiling():
            self._follow_traced(parameters)
            return
        if type(parameters) is dict and "weight" in parameters:
            parameters = FollowedParameters(parameters)
            parameters.owners = []
            here["_parameters"] = parameters
        if isinstance(parameters, FollowedParameters):
            parameters.owned_by(self)
        weight = parameters.get("weight")
        complete = all(name in parameters for name in self.parameter_names)
        plain = self._plain_of(weight) if complete else None
        if plain is not None:
            plain.held_by(self)
        here.update(_followed=weight, _set_aside=None)
        here.update(plain_weight=plain, plain_bias=parameters.get("bias"))

    def _plain_of(self, weight: Any) -> Any:
        """The plain parts that ``forward`` multiplies by, or None where it multiplies by the
        weight."""
        return weight.plain() if isinstance(weight, QuantizedTensor) else None

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Let go of the weight during a conversion: torch swaps the insides of some parameters
        then, and refuses where anybody holds a weak reference."""
        self.__dict__.update(plain_weight=None, _followed=None, _set_aside=None)
        try:
            return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        finally:
            self.follow_weight()

    def _follow_traced(self, parameters: dict[str, Any]) -> None:
        """Multiply by the weight itself until the old one is back: torch.compile traces a function
        that replaces a parameter, as functional_call does during a call."""
        self.plain_bias = parameters.get("bias")
        if parameters.get("weight") is self._followed:
            if self.plain_weight is None:
                self.plain_weight = self._set_aside
        elif self.plain_weight is not None:
            self._set_aside, self.plain_weight = self.plain_weight, None

    # --- what replaces a parameter -----------------------------------------------------------

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """As ``nn.Module`` has it; a weight or a bias is multiplied by from then on.

        Args:
            name: of the parameter. param: of any shape, or None.
        """
        super().register_parameter(name, param)
        if name in self.parameter_names:
            self.follow_weight()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in FOLLOWING:  # nn.Module would register a bias again
            object.__setattr__(self, name, value)
            return
        super().__setattr__(name, value)
        if name in self.parameter_names or name in ("_parameters", "__dict__"):
            self.follow_weight()

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        if name in self.parameter_names:
            self.follow_weight()

    def __getstate__(self) -> dict[str, Any]:
        return {name: x for name, x in self.__dict__.items() if name not in FOLLOWING}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.follow_weight()
