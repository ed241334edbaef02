"""Which MLPs ``fuse_`` lets run in three ops, found by running them: the model's example shows what
reads the input of a module and what returns its output, and numbers in the place of the products of
its layers show what it computes between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ..nn.expert import Expert
from ..nn.gated_call import GatedCall, is_heard, why_no_pair
from ..nn.linear import Linear
from .fuse_gates import Odd, gate_between
from .state import Runs

_ON_CPU = "on a CPU its results would round otherwise than before. Hint: fuse_(mlps=True)"
_ORDERS = ((0, 1), (1, 0))  # which of two layers is the gate


@dataclass
class Seen:
    """The first call of a module.

    Attributes:
        x: its input; None where it was called with anything but one tensor.
        sources: names of the children that read it, once for each call. down: the name of the child
            that returned what the module returned; empty where there is none.
    """

    x: Tensor | None
    sources: list[str] = field(default_factory=list)
    down: str = ""
    last: tuple[str, Any] = ("", None)

    def returns(self, found: Any) -> None:
        """Note what the module returned, and let go of tensors."""
        name, last = self.last
        self.down = name if found is last and name not in self.sources else ""
        self.last = ("", None)


@dataclass(frozen=True)
class FoundMLP:
    """An MLP that is to run in three ops.

    Attributes:
        name: of the module. call: how it runs. pair: names of gate and up, which are to have one
            product; none where they are one layer.
    """

    name: str
    call: GatedCall
    pair: tuple[str, ...]


def parents_of(model: nn.Module, layers: Mapping[str, Linear]) -> dict[str, nn.Module]:
    """Name -> module, of those with two children or more that are, or wrap, one layer each.

    Args:
        model: of which ``layers`` are.
    """
    within = {id(layer) for layer in layers.values()}

    def holds_one(module: nn.Module) -> bool:
        return sum(id(x) in within for x in module.modules()) == 1

    return {
        name: module
        for name, module in model.named_modules()
        if not isinstance(module, Expert) and sum(map(holds_one, module.children())) >= 2
    }


@contextmanager
def seeing(parents: Mapping[str, nn.Module]) -> Iterator[dict[str, Seen]]:
    """Note the first call of each module while the model runs within this.

    Args:
        parents: by name, see :func:`parents_of`.
    """
    found: dict[str, Seen] = {}
    with ExitStack() as stack:
        for name, module in parents.items():
            _see(stack, found, name, module)
        yield found


def _see(stack: ExitStack, found: dict[str, Seen], name: str, module: nn.Module) -> None:
    open_calls: list[Seen] = []  # the first, while it runs

    def entered(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if name not in found:
            is_one = len(args) == 1 and not kwargs and type(args[0]) is Tensor
            found[name] = Seen(args[0] if is_one else None)
            open_calls.append(found[name])

    def left(_: Any, args: Any, result: Any) -> None:
        if open_calls:
            open_calls.pop().returns(result)

    hooks = [
        module.register_forward_pre_hook(entered, with_kwargs=True),
        module.register_forward_hook(left),
    ]
    for child, layer in module.named_children():

        def called(_: Any, args: tuple[Any, ...], child: str = child) -> None:
            if open_calls and args and args[0] is open_calls[0].x:
                open_calls[0].sources.append(child)

        def returned(_: Any, args: Any, result: Any, child: str = child) -> None:
            if open_calls:
                open_calls[0].last = (child, result)

        hooks += [layer.register_forward_pre_hook(called), layer.register_forward_hook(returned)]
    for hook in hooks:
        stack.callback(hook.remove)


def found_mlps(
    parents: Mapping[str, nn.Module],
    seen: Mapping[str, Seen],
    apart: Mapping[str, str],
    runs: Runs,
    on_cpu: bool,
) -> tuple[list[FoundMLP], dict[str, str]]:
    """The MLPs that can run in three ops; and name -> why not, of other modules that read their
    input in layers and return the output of another.

    Args:
        parents: by name. seen: their calls. apart: name of a layer -> why it has a product of its
            own. runs: of the model, without gradients and with no layer joined. on_cpu: whether
            those on a CPU are wanted.
    """
    mlps: list[FoundMLP] = []
    reasons: dict[str, str] = {}
    for name, module in parents.items():
        call = seen.get(name)
        if call is None or not call.down or not call.sources:
            continue
        try:
            found = _found(name, module, call, apart, runs)
            assert call.x is not None
            if call.x.device.type == "cpu" and not on_cpu:
                raise Odd(_ON_CPU)
            mlps.append(found)
        except Odd as odd:
            reasons[name] = str(odd)
    return mlps, reasons


def _found(
    name: str, module: nn.Module, seen: Seen, apart: Mapping[str, str], runs: Runs
) -> FoundMLP:
    children: dict[str, Any] = dict(module.named_children())
    sources = [children[x] for x in seen.sources]
    _refuse_other_forms(module, seen, children)
    others = tuple((x, y) for x, y in children.items() if x not in (*seen.sources, seen.down))
    _refuse_others(module, others)
    rows = [x.weight.shape[0] for x in sources]
    if len(sources) == 1 and rows[0] % 2:
        raise Odd(f"its {seen.sources[0]} has an odd number of output channels")
    prefix = f"{name}." if name else ""
    _refuse_layers([f"{prefix}{x}" for x in seen.sources], sources, apart)
    assert seen.x is not None
    with runs.state.run():
        gate, swapped = gate_between(module, sources, children[seen.down], seen.x)
    if len(sources) == 1:
        if swapped:
            raise Odd(f"its {seen.sources[0]} has the rows of up before those of the gate")
        return FoundMLP(name, GatedCall(tuple(seen.sources), seen.down, gate, others), ())
    names = tuple(seen.sources[i] for i in _ORDERS[swapped])
    if reason := why_no_pair(*(children[x] for x in names)):
        raise Odd(f"gate and up have no product of their own: {reason}")
    call = GatedCall(names, seen.down, gate, others)
    return FoundMLP(name, call, tuple(f"{prefix}{x}" for x in names))


def _refuse_other_forms(module: nn.Module, seen: Seen, children: Mapping[str, Any]) -> None:
    if "forward" in module.__dict__ or hasattr(module, "_hf_hook"):
        raise Odd("its forward is not that of its class")
    if not any(isinstance(x, Linear) for x in children[seen.down].modules()):
        raise Odd(f"its {seen.down} comes behind its last layer")
    if len(set(seen.sources)) != len(seen.sources):
        raise Odd(f"its {seen.sources[0]} is called more than once")
    for name in seen.sources:
        if type(children[name]) is not Linear:
            raise Odd(f"its {name} is a {type(children[name]).__name__}")
    if len(seen.sources) > 2:
        raise Odd(f"{len(seen.sources)} of its layers read its input: {', '.join(seen.sources)}")


def _refuse_others(module: nn.Module, others: tuple[tuple[str, nn.Module], ...]) -> None:
    """Refuse what may compute something else tomorrow."""
    if module._buffers or any(x is not None for x in module._parameters.values()):
        raise Odd("it has parameters or buffers of its own")
    for name, other in others:
        if next(other.parameters(), None) is not None or next(other.buffers(), None) is not None:
            raise Odd(f"its {name} has parameters or buffers")
        if is_heard(other):
            raise Odd(f"its {name} has hooks")


def _refuse_layers(names: list[str], layers: list[Linear], apart: Mapping[str, str]) -> None:
    for name, layer in zip(names, layers, strict=True):
        if reason := apart.get(name) or layer.why_not_joined():
            raise Odd(f"of {name.rpartition('.')[2]}, {reason}")
