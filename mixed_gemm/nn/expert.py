"""One expert of a mixture: its linears, by the names that the files of its model have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from .followed import OF_THE_CALL
from .hooked import TellsOfHooks

if TYPE_CHECKING:
    from .experts import Experts


@dataclass(frozen=True)
class Names:
    """The names of an expert's linears, which are those that the files of its model have."""

    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"


@dataclass(frozen=True)
class Form:
    """How a module holds its experts.

    Attributes:
        count: of experts.
        has_gate: whether one tensor has the columns of a gate beside those it multiplies.
        is_transposed: whether weights are ``[E, K, N]``; else ``[E, N, K]``.
        alternates: whether columns of gate and up alternate; else all of the gate come first.
        is_sorted: whether the module takes as many rows for each expert, one expert after the
            other, and no indices (Llama 4).
    """

    count: int
    has_gate: bool
    is_transposed: bool
    alternates: bool
    is_sorted: bool


class Expert(TellsOfHooks):
    """The linears of one expert, by the names of :class:`Names`."""

    def __init__(self, names: Names, linears: dict[str, nn.Module]) -> None:
        super().__init__()
        self.names = names
        for name, linear in linears.items():
            self.add_module(name, linear)

    @property
    def linears(self) -> list[Any]:
        """The gate, where there is one, up and down."""
        names, modules = self.names, self._modules
        return [modules[x] for x in (names.gate, names.up, names.down) if x in modules]

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        watch = self._watch_of_hooks()
        if name in OF_THE_CALL and watch is not None:
            watch.forget()

    def _watch_of_hooks(self) -> Any:
        return getattr(self.__dict__.get("_modules"), "watch", None)

    def forward(self, x: Tensor, owner: Experts) -> Tensor:
        """The result of the expert for some tokens.

        Args:
            x: ``[T, hidden size]``. owner: whose expert it is.

        Returns:
            ``[T, hidden size]``.
        """
        linears, names = self._modules, self.names
        up: Any = linears[names.up]
        down: Any = linears[names.down]
        gate: Any = linears.get(names.gate)
        hidden = owner.gated(None if gate is None else gate(x), up(x))
        return owner.finished(down(hidden))
