"""Which linear layers read the same tensor, found by running the model: the same object, with no
write to it in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from .state import Runs, run_batch


@dataclass(frozen=True)
class Read:
    """The tensor that a call of a layer reads.

    Attributes:
        tensor: its number, among those that were read. version: how often it had been written to.
    """

    tensor: int
    version: int


@dataclass
class Reads:
    """The tensors that layers read, in the order in which they are called.

    Attributes:
        calls: name of a layer -> its calls. Layers that were not called are not in it.
    """

    calls: dict[str, list[Read]] = field(default_factory=dict)
    _numbers: Any = field(default_factory=WeakIdKeyDictionary)
    _count: int = 0

    def add(self, name: str, x: Any) -> None:
        """Note a call of a layer with ``x``, a tensor of any shape."""
        if not isinstance(x, Tensor):
            return
        if x not in self._numbers:
            self._numbers[x], self._count = self._count, self._count + 1
        # Outside of inference mode, where the model runs, nobody writes to a tensor of that mode.
        version = 0 if x.is_inference() else x._version
        self.calls.setdefault(name, []).append(Read(self._numbers[x], version))

    def together(self) -> list[list[str]]:
        """Layers that read the same tensors at every call, in the order of their first call; one
        list for each, also where it is alone."""
        found: dict[tuple[Read, ...], list[str]] = {}
        for name, calls in self.calls.items():
            found.setdefault(tuple(calls), []).append(name)
        return list(found.values())

    def written_between(self, name: str) -> str:
        """Another layer that reads the same tensor before or after somebody wrote to it; empty
        where there is none."""
        mine = {read.tensor: read.version for read in self.calls.get(name, ())}
        for other, calls in self.calls.items():
            if any(mine.get(x.tensor, x.version) != x.version for x in calls):
                return other
        return ""


@contextmanager
def _watched(layers: Mapping[str, nn.Module], reads: Reads) -> Iterator[None]:
    with ExitStack() as stack:
        for name, layer in layers.items():

            def hook(
                module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], name: str = name
            ) -> None:
                reads.add(name, args[0] if args else kwargs.get("input"))

            stack.callback(layer.register_forward_pre_hook(hook, with_kwargs=True).remove)
        yield


def watch(runs: Runs, layers: Mapping[str, nn.Module], batch: Any) -> tuple[Reads, Any]:
    """Run a model once, and return what its layers read beside what the model returns.

    Args:
        runs: of the model, without gradients. layers: by name. batch: see ``run_batch``.
    """
    reads = Reads()
    with _watched(layers, reads), runs.of(batch) as given:
        return reads, run_batch(runs.model, given)
