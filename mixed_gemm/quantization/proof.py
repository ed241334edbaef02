"""The proof, on the data at hand and before anything is rounded, of what a sequence of blocks may
take for granted.

The model's own forward runs once for each batch, and it is noted what every block is called with:
tensors that another call returned, and tensors that depend on no layer to be rounded. With these
and with what the rounded blocks before it return, a block is called as the model would call it. A
block that is called with something else gets it from the model's own forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from ..ops.errors import ArgumentValueError
from .block_sequence import GIVEN, REST, BlockCall, Link, Place, Unit, Way, block_of, find_blocks
from .clean import Clean
from .state import BOOKKEEPING, Generators, Runs, replaced, run_batch, version
from .values import Apart, digest, fresh, refilled


@dataclass
class _Seen:
    """A call as the model's own forward makes it."""

    block: str
    template: Any
    returned: bool = False
    runs: dict[str, int] = field(default_factory=dict)


class _Returned:
    """Tensors that calls returned or were given, while somebody holds them."""

    def __init__(self) -> None:
        self._known: Any = WeakIdKeyDictionary()
        self._links: dict[Place, Link] = {}

    def add(self, call: int, result: Any) -> None:
        for path, x in Apart(result).tensors:
            self._known[x] = (Place(call, path), digest(x))

    def add_given(self, call: int, path: tuple[Any, ...], x: Tensor) -> None:
        self._known[x] = (Place(call, (GIVEN, *path)), digest(x))

    def link(self, x: Tensor) -> Link | None:
        """Return a link to where a tensor was returned, if nobody wrote to it since then."""
        place, then = self._known.get(x, (None, None))
        if place is None or then != digest(x):
            return None
        return self._links.setdefault(place, Link(place, x.shape, x.dtype))


class _True:
    """The model's own forward, seen from within the hooks that others put on its blocks."""

    def __init__(
        self,
        model: nn.Module,
        blocks: Mapping[str, nn.Module],
        layers: Mapping[str, nn.Module],
        runs: Runs,
        reading: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        self._model, self._blocks, self._layers, self._runs = model, blocks, layers, runs
        self._reading = reading
        self._within = {name: set(block.modules()) for name, block in blocks.items()}
        self._of = {name: block_of(name, blocks) for name in layers}
        # Digest -> a tensor that calls have in common.
        self._kept: dict[tuple[Any, ...], Tensor] = {}
        self.whole: dict[str, str] = {}  # block -> why its calls cannot be replayed

    def run(self, batch: Any) -> tuple[list[_Seen], list[str]]:
        """Run a batch; return the calls of blocks, and in which order blocks and layers in no block
        run."""
        self._calls: list[_Seen] = []
        self._events: list[str] = []
        self._open: list[str] = []
        self._made = _Returned()
        with self._runs.of(batch) as given, self._watched():
            self._clean = Clean([*self._staying(), *(x for _, x in Apart(given).tensors)])
            with self._clean:
                run_batch(self._model, given)
        return self._calls, self._events

    def _staying(self) -> Iterator[Tensor]:
        """Yield the tensors that the model has beside its blocks and the layers to quantize."""
        rounded = {id(p) for x in self._layers.values() for p in x.parameters()}
        inside = set[nn.Module]().union(*self._within.values())
        for module in self._model.modules():
            if module not in inside:
                own = {k: v for k, v in module.__dict__.items() if k not in BOOKKEEPING}
                held = [own, module._buffers, list(module._parameters.values())]
                for x in [*Apart(held).tensors, *enumerate(module._parameters.values())]:
                    if x[1] is not None and id(x[1]) not in rounded:
                        yield x[1]

    @contextmanager
    def _watched(self) -> Iterator[None]:
        with ExitStack() as stack:
            for name, block in self._blocks.items():
                self._watch_block(stack, name, block)
            for name, layer in self._layers.items():
                hook = layer.register_forward_pre_hook(self._layer_hook(name))
                stack.callback(hook.remove)
            yield

    def _watch_block(self, stack: ExitStack, name: str, block: nn.Module) -> None:
        own = block.forward

        def entered(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._paused(lambda: self._enter(name, args, kwargs))

        def forward(*args: Any, **kwargs: Any) -> Any:
            if self._open[-1:] != [name] or self._calls[-1].returned:
                self.whole.setdefault(name, "its forward is called by itself")
            else:
                self._calls[-1].returned = True
            with self._reading(name):
                loaded = [] if block not in self._runs.aside else list(block.buffers())
                before = [version(x) for x in loaded]
                result = self._paused(lambda: own(*args, **kwargs))
                if [version(x) for x in loaded] != before:  # nobody makes them what they were
                    self.whole.setdefault(name, "it writes to its buffers")
            return result

        def left(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            self._paused(lambda: self._leave(name, output))

        first: Any = block.register_forward_pre_hook
        stack.callback(first(entered, prepend=True, with_kwargs=True).remove)
        stack.enter_context(replaced(block, forward))
        stack.callback(block.register_forward_hook(left).remove)

    def _paused(self, function: Callable[[], Any]) -> Any:
        paused = self._clean.paused
        self._clean.paused = True
        try:
            return function()
        finally:
            self._clean.paused = paused

    def _layer_hook(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...]) -> None:
            block = self._of[name]
            if block is None:
                self._events.append(name)
            elif self._open[-1:] != [block]:
                self.whole.setdefault(block, f"{name} runs outside of it, too")
            else:
                runs = self._calls[-1].runs
                runs[name] = runs.get(name, 0) + 1

        return hook

    def _enter(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._events.append(name)
        self._open.append(name)
        given = args, kwargs
        self._calls.append(_Seen(name, self._template(given)))
        if not self._runs.state.is_pristine(self._within[name]):
            self.whole.setdefault(name, "something was left in it before it is called")
        self._given, self._apart, self._numbers = given, Apart(given), Generators()

    def _template(self, given: Any) -> Any:
        """Return the arguments with what is known of each tensor; None where something is not."""
        instead: dict[int, Any] = {}
        unknown: list[tuple[tuple[Any, ...], Tensor]] = []
        for path, x in Apart(given).tensors:
            if (link := self._made.link(x)) is not None:
                instead[id(x)] = link
            elif self._clean.has(x):
                now = digest(x)
                if now not in self._kept:
                    self._kept[now] = fresh(x)
                instead[id(x)] = self._kept[now]
            else:
                unknown.append((path, x))
        for path, x in unknown:  # the next block may be given the same
            self._made.add_given(len(self._calls), path, x)
        return None if unknown or self._clean.told else refilled(given, instead)

    def _leave(self, name: str, result: Any) -> None:
        self._open.pop()
        self._made.add(len(self._calls) - 1, result)
        if not self._numbers.are_same():
            self.whole.setdefault(name, "it draws random numbers")
        after, before = Apart(self._given), self._apart
        same_tensors = [id(x) for _, x in after.tensors] == [id(x) for _, x in before.tensors]
        left = not self._runs.state.is_pristine(self._within[name])
        tells = any(_is_number(x) for _, x in Apart(result).rest)
        if tells or left or not same_tensors or not after.has_like(before):
            self._clean.told = True  # others may read what no tensor says that it returned


def _is_number(x: Any) -> bool:
    return type(x) in (int, float, complex)


@torch.no_grad()
def units_of(
    model: nn.Module,
    layers: Mapping[str, nn.Module],
    batches: Sequence[Any],
    runs: Runs,
    reading: Callable[[str], AbstractContextManager[None]] = lambda name: nullcontext(),
) -> list[Unit]:
    """Find the units of a model in the order in which they first run, and how each is calibrated.

    Args:
        model: in eval mode. layers: name -> module of those to quantize.
        batches: see ``run_batch``. runs: of the model.
        reading: within this of a block's name it has its weights.

    Raises:
        ValueError: there is no batch.
    """
    if not batches:
        raise ArgumentValueError("quantize_: calibration gave no batch")
    blocks = find_blocks(model, layers)
    true = _True(model, blocks, layers, runs, reading)
    units: dict[str, Unit] = {}
    orders: list[list[str]] = []
    order: list[str] = []
    for i, batch in enumerate(batches):
        calls, events = true.run(batch)
        _put_in_order(order, events)
        for name in events:
            units.setdefault(name, Unit(name, blocks.get(name), []))
        for number, seen in enumerate(calls):
            call = BlockCall(i, number, seen.template, seen.runs)
            units[seen.block].calls.append(call)
        orders.append(events)
    runs.state.reset()
    found = _joined({name: units[name] for name in order}, blocks, layers)
    _decide(found, orders, true.whole)
    return found


def _put_in_order(order: list[str], events: list[str]) -> None:
    """Insert what a batch is the first to run behind what it runs before that."""
    place = 0
    for name in events:
        if name not in order:
            order.insert(place, name)
        place = max(place, order.index(name) + 1)


def _joined(
    units: dict[str, Unit], blocks: Mapping[str, nn.Module], layers: Iterable[str]
) -> list[Unit]:
    """Give units their layers; layers in no block that follow each other are one unit."""
    for name in layers:  # a layer that never runs comes last
        own = block_of(name, blocks) or name
        units.setdefault(own, Unit(own, blocks.get(own), [])).layers.append(name)
    found: list[Unit] = []
    for unit in units.values():
        if unit.block is None and found and found[-1].block is None:
            found[-1].layers += unit.layers
        else:
            found.append(unit)
    for number, unit in enumerate(x for x in found if x.block is None):
        unit.name = REST if number == 0 else f"{REST}, part {number + 1}"
    return found


def _decide(units: list[Unit], orders: list[list[str]], whole: Mapping[str, str]) -> None:
    """Give each unit its way."""
    place = {name: i for i, unit in enumerate(units) for name in (unit.name, *unit.layers)}
    producers = {(c.batch, c.number): i for i, unit in enumerate(units) for c in unit.calls}
    settled: set[int] = set()  # units whose calls take nothing from themselves or from later units
    for i, unit in enumerate(units):
        if unit.block is None:
            unit.way, unit.reason = Way.WHOLE, "is in no block"
        elif unit.name in whole:
            unit.way, unit.reason = Way.WHOLE, whole[unit.name]
        else:
            unit.reason = _why_not_chained(unit, i, producers, settled)
            unit.way = Way.CAPTURED if unit.reason else Way.CHAINED
        if unit.way is Way.CHAINED or (
            unit.way is Way.CAPTURED and _nothing_later_before(unit.name, i, orders, place)
        ):
            settled.add(i)
        if unit.way is not Way.CHAINED:
            for call in unit.calls:
                call.template = None


def _why_not_chained(
    unit: Unit, index: int, producers: Mapping[tuple[int, int], int], settled: set[int]
) -> str:
    for call in unit.calls:
        if call.template is None:
            return "the model computes between blocks what it is called with"
        for place in call.links():
            source = producers[call.batch, place.call]
            if source == index:
                return "it takes what it returned before"
            if source not in settled:
                return "it takes what a block returns whose calls depend on each other"
    return ""


def _nothing_later_before(
    name: str, index: int, orders: list[list[str]], place: Mapping[str, int]
) -> bool:
    """Tell whether in no batch something comes before a call of a unit that is rounded with it or
    after it."""
    for events in orders:
        for i, event in enumerate(events):
            if event == name and any(place[x] >= index for x in events[:i]):
                return False
    return True
