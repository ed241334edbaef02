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
from .hooked import TellsOfHooks

# Attributes that follow the parameters, so that no copy of a module has them.
FOLLOWING = ("plain_weight", "plain_bias", "_followed", "_followed_bias", "_set_aside", "piece",
             "watch")  # fmt: skip
# Attributes that say what a call computes beside the parameters.
OF_THE_CALL = ("__class__", "forward", "_forward_hooks", "_forward_pre_hooks", "_backward_hooks",
                "_backward_pre_hooks")  # fmt: skip


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


class FollowsWeight(TellsOfHooks):
    """A base of modules with a quantized ``weight``.

    Attributes:
        plain_weight: ``weight.plain()`` while ``weight`` and ``bias`` are parameters and the weight
            is quantized, else None; ``forward`` multiplies by it.
        plain_bias: the parameter ``bias``, or None.
    """

    parameter_names: ClassVar[tuple[str, ...]] = ("weight", "bias")
    plain_weight: Any = None
    plain_bias: Any = None
    watch: Any = None  # hears of whatever is replaced, where an expert's linear is part of a stack
    _followed: Any = None  # the parameter that plain_weight is of
    _followed_bias: Any = None
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
        bias = self._plain_bias_of(parameters.get("bias"))
        here.update(plain_weight=plain, plain_bias=bias, _followed_bias=bias)
        self.tell_watch()

    def _watch_of_hooks(self) -> Any:
        return self.__dict__.get("watch")

    def tell_watch(self) -> None:
        """Let the experts of a layer look at this linear of theirs again."""
        watch = self.__dict__.get("watch")
        if watch is not None:
            watch.tell(self)

    def _plain_of(self, weight: Any) -> Any:
        """The plain parts that ``forward`` multiplies by, or None where it multiplies by the
        weight."""
        return weight.plain() if isinstance(weight, QuantizedTensor) else None

    def _plain_bias_of(self, bias: Any) -> Any:
        """The bias that ``forward`` adds, or None."""
        return bias

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
        was_away = self._is_away(self.plain_bias)
        self.plain_bias = self._plain_bias_of(parameters.get("bias"))
        if parameters.get("weight") is self._followed:
            if self.plain_weight is None:
                self.plain_weight = self._set_aside
        elif self.plain_weight is not None:
            self._set_aside, self.plain_weight = self.plain_weight, None
        if self.watch is not None:
            self.watch.away += self._is_away(self.plain_bias) - was_away

    def _is_away(self, bias: Any) -> int:
        return int(self.plain_weight is None or bias is not self._followed_bias)

    # --- what replaces a parameter -----------------------------------------------------------

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """As ``nn.Module`` has it; a weight or a bias is multiplied by from then on.

        Args:
            name: of the parameter. param: of any shape, or None.
        """
        hears = self._hears_of_parameters()
        super().register_parameter(name, param)
        if name in self.parameter_names and not hears:
            self.follow_weight()

    def _hears_of_parameters(self) -> bool:
        """Whether the dictionary of parameters tells this module of each that is replaced; a
        compiler does not see it do so."""
        parameters = self.__dict__.get("_parameters")
        if not isinstance(parameters, FollowedParameters) or is_dynamo_compiling():
            return False
        return any(owner() is self for owner in parameters.owners)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in FOLLOWING:  # nn.Module would register a bias again
            object.__setattr__(self, name, value)
            return
        super().__setattr__(name, value)
        replaced = name in ("_parameters", "__dict__")
        if replaced or (name in self.parameter_names and not self._hears_of_parameters()):
            self.follow_weight()
        elif name in OF_THE_CALL:
            self.tell_watch()

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        if name in self.parameter_names:
            self.follow_weight()

    def __getstate__(self) -> dict[str, Any]:
        return {name: x for name, x in self.__dict__.items() if name not in FOLLOWING}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.follow_weight()
