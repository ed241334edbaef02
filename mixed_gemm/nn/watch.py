"""``Watch``: whether the linears of experts are those that were looked at, without another look in
every call. Who replaces one, its weight, a part of that or its bias, tells.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from operator import is_
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from .followed import FollowsWeight

if TYPE_CHECKING:
    from .experts import Experts

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class WatchedModules(dict[str, Any]):
    """The dictionary of a module's children, which tells a watch when one is replaced."""

    watch: Watch | None = None

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        self._tell()

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self._tell()

    def pop(self, name: str, *default: Any) -> Any:
        found = super().pop(name, *default)
        self._tell()
        return found

    def update(self, *others: Any, **more: Any) -> None:
        super().update(*others, **more)
        self._tell()

    def clear(self) -> None:
        super().clear()
        self._tell()

    def _tell(self) -> None:
        if self.watch is not None:
            self.watch.forget()

    def __reduce__(self) -> Any:
        return dict, (dict(self),)  # a copy is watched by nobody


class Watch:
    """The linears that were found when the experts of a layer were looked at.

    Args:
        experts: which forget what was made of their weights when one of these is another.
        biases: of what was made, those of each linear in their order; none where nothing was.

    Attributes:
        away: how many linears have other parameters while torch.compile traces, which does not
            tell.
        may_be_hooked: whether hooks were there when somebody looked, or were registered since.
        traced: the linears whose parameters are others while torch.export traces.
    """

    def __init__(self, experts: Experts, biases: Sequence[Tensor] = ()) -> None:
        self.away, self.traced = 0, set[int]()
        self._experts = weakref.ref(experts)
        activation = experts._modules.get("act_fn")
        self._hooks: list[Any] = [] if activation is None else hooks_of(activation)
        self._seen: dict[int, list[Any]] = {}
        self._mine, self._biases = list(biases), list[Tensor]()
        for expert in experts.own.values():
            self._hooks += hooks_of(expert)
            for linear in expert.linears:
                self._hooks += hooks_of(linear)
                if isinstance(linear, FollowsWeight):
                    self._seen[id(linear)] = _seen(linear)
                    linear.watch = self
                    bias: Any = linear.own_bias
                    self._biases += [] if bias is None or not biases else [bias]
            self._follow(expert)
        self._follow(experts)
        self.may_be_hooked = any(self._hooks)

    def _follow(self, module: nn.Module) -> None:
        modules: Any = module._modules
        if not isinstance(modules, WatchedModules):
            modules = module.__dict__["_modules"] = WatchedModules(modules)
        modules.watch = self

    def holds(self) -> bool:
        """Whether all is as it was, as far as nobody tells: memory that is assigned to a bias."""
        addresses = [[x.data_ptr() for x in each] for each in (self._biases, self._mine)]
        return addresses[0] == addresses[1]

    @property
    def is_hooked(self) -> bool:
        """Whether somebody hears of the calls of a linear, an expert or the activation."""
        found = any(self._hooks)
        if self.may_be_hooked is not found:  # a graph of torch.compile guards it
            self.may_be_hooked = found
        return found

    def tell(self, linear: nn.Module) -> None:
        """Look at a linear of which something was replaced, or written in place.

        Args:
            linear: one of an expert.
        """
        before = self._seen.get(id(linear))
        now = _seen(linear)
        if any(type(x) not in (Tensor, nn.Parameter) for x in now[3:] if x is not None):
            self.traced.add(id(linear))
            return
        self.traced.discard(id(linear))
        if before is None or len(before) != len(now) or not all(map(is_, before, now)):
            self.forget()

    def forget(self) -> None:
        """Let the experts go one by one, until they are stacked again."""
        experts = self._experts()
        for each in (self._seen, self._hooks, self._biases, self._mine):
            each.clear()
        if experts is not None and experts._watch is self:
            experts._watch = experts._stacked = None


def hooks_of(module: nn.Module | None) -> list[Any]:
    """The dictionaries of a module's hooks, those of its calls and of their gradients."""
    return [getattr(module, name) for name in HOOKS]


def _seen(linear: nn.Module) -> list[Any]:
    bias = linear._parameters.get("bias")
    weight = getattr(linear, "own_weight", linear._parameters.get("weight"))
    parts = [getattr(weight, part.name) for part in getattr(weight, "parts", ())]
    return [type(linear), linear.__dict__.get("forward"), weight, bias, *parts]
