"""A model as a chain of blocks, found by running it: whatever its architecture, a decoder of
transformers is a list of modules of which each takes the output of the one before.

One pass over the calibration data notes what each block is called with besides the hidden states
(masks, positions), with the blocks standing aside; from then on blocks run one at a time, so a
method holds one block and the hidden states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..ops.errors import ArgumentValueError
from .state import Runs, fresh

REST = "the rest of the model"


@dataclass
class Call:
    """How a block is called: everything but the hidden states, which stand at ``place``: the
    position or the name of an argument."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    place: int | str

    def run(self, block: Callable[..., Any], hidden: Tensor) -> Tensor:
        """The output of the block; it may write to what it is given, which are copies."""
        args, kwargs, hidden = fresh((list(self.args), self.kwargs, hidden))
        if isinstance(self.place, int):
            args[self.place] = hidden
        else:
            kwargs[self.place] = hidden
        out = block(*args, **kwargs)
        return out if isinstance(out, Tensor) else out[0]


@dataclass
class Chain:
    """Blocks in the order in which they run.

    blocks: name -> module; ``REST``, the last, is whatever is in no block, where that is asked for.
    calls: for each block, how it is called with each batch. first: the hidden states that enter
    the first block, a batch each.
    """

    blocks: dict[str, Callable[..., Any]]
    calls: dict[str, list[Call]] = field(default_factory=dict)
    first: list[Tensor] = field(default_factory=list)

    def names_in(self, block: str, names: Iterable[str]) -> list[str]:
        """Those of the layers ``names`` that are in a block."""
        others = [x for x in self.blocks if x != REST]
        if block == REST:
            return [x for x in names if not _within(x, others)]
        return [x for x in names if x.startswith(f"{block}.")]


class Around:
    """What of a model is no block, as one more block: the model, with the blocks standing aside and
    the hidden states in the place of what the last one returns. Its batch is an argument."""

    def __init__(self, model: nn.Module, aside: dict[str, nn.Module], size: int = 0) -> None:
        self._model, self._aside, self._size = model, aside, size

    def __call__(self, hidden: Tensor, batch: Any) -> Tensor:
        with ExitStack() as stack:
            runs = stack.enter_context(Runs(self._model, self._aside.values()))
            returned = _as_returned(hidden, self._size)
            for block in self._aside.values():
                stack.enter_context(_replaced(block, lambda *args, **kwargs: returned))
            out = runs(batch)
        while not isinstance(out, Tensor):
            out = next(iter(out.values())) if hasattr(out, "values") else out[0]
        return out


def find_blocks(model: nn.Module, targets: Iterable[str]) -> dict[str, nn.Module]:
    """The list of modules that holds most of the layers to quantize, if more than one of its
    members does; else nothing.

    Args:
        model: any. targets: names of layers below it.
    """
    names = list(targets)
    best: dict[str, nn.Module] = {}
    most = 0
    for name, module in model.named_modules():
        if not isinstance(module, nn.ModuleList):
            continue
        within = [x for x in names if x.startswith(f"{name}.")]
        members = {x[len(name) + 1 :].split(".")[0] for x in within}
        if len(members) > 1 and len(within) > most:
            most = len(within)
            best = {f"{name}.{child}": block for child, block in module.named_children()}
    return best


def _within(name: str, blocks: Iterable[str]) -> bool:
    return any(name.startswith(f"{block}.") for block in blocks)


def _place_of(hidden: Tensor, args: Sequence[Any], kwargs: dict[str, Any]) -> int | str | None:
    for i, value in enumerate(args):
        if value is hidden:
            return i
    return next((name for name, value in kwargs.items() if value is hidden), None)


@contextmanager
def _replaced(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Another ``forward`` of one module, for a while."""
    own = module.__dict__.get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if own is None:
            del module.forward
        else:
            module.forward = own


class Stop(Exception):
    """Ends a run once what is wanted of it is known."""


def _form(
    model: nn.Module, blocks: dict[str, nn.Module], batch: Any
) -> tuple[int | str, int] | None:
    """Where the second block takes the output of the first, which is where all take theirs, and of
    how many values that is a tuple (0: a tensor). None where it does not take it."""
    names = list(blocks)
    made: list[Tensor] = []
    found: list[tuple[int | str, int]] = []
    first = blocks[names[0]].forward

    def run(*args: Any, **kwargs: Any) -> Any:
        out = first(*args, **kwargs)
        made[:] = [out if isinstance(out, Tensor) else out[0]]
        found[:] = [(0, 0 if isinstance(out, Tensor) else len(out))]
        return out

    def look(*args: Any, **kwargs: Any) -> Any:
        place = _place_of(made[0], args, kwargs) if made else None
        found[:] = [] if place is None else [(place, found[0][1])]
        raise Stop

    aside = [blocks[name] for name in names[1:]]
    with (
        Runs(model, aside) as runs,
        _replaced(blocks[names[0]], run),
        _replaced(blocks[names[1]], look),
    ):
        try:
            runs(batch)
        except Stop:
            return found[0] if found else None
    return None


def _as_returned(hidden: Tensor, size: int) -> Any:
    """As the block returns it whose output is a tuple of this size, or a tensor."""
    return (hidden, *[None] * (size - 1)) if size else hidden


def _recorded(
    model: nn.Module,
    blocks: dict[str, nn.Module],
    form: tuple[int | str, int],
    batches: Sequence[Any],
) -> Chain | None:
    """How each block is called with each batch, noted with all blocks standing aside; None where
    they do not run once each, in their order."""
    (place, size), names = form, list(blocks)
    chain = Chain(dict(blocks), {name: [] for name in blocks})
    order: list[str] = []

    def aside(name: str) -> Callable[..., Any]:
        def note(*args: Any, **kwargs: Any) -> Any:
            hidden = args[place] if isinstance(place, int) else kwargs[place]
            if name == names[0]:
                chain.first.append(hidden)
            held = tuple(None if x is hidden else x for x in args)
            named = {key: None if x is hidden else x for key, x in kwargs.items()}
            chain.calls[name].append(Call(held, named, place))
            order.append(name)
            if name == names[-1]:
                raise Stop
            return _as_returned(hidden, size)

        return note

    with ExitStack() as stack:
        runs = stack.enter_context(Runs(model, blocks.values()))
        for name, block in blocks.items():
            stack.enter_context(_replaced(block, aside(name)))
        for batch in batches:
            with suppress(Stop):
                runs(batch)
    return chain if order == names * len(batches) else None


@torch.no_grad()
def chain_of(
    model: nn.Module,
    targets: Iterable[str],
    batches: Sequence[Any],
    reading: Callable[[str], AbstractContextManager[None]] = lambda name: nullcontext(),
) -> Chain:
    """Run the batches up to the first block, and find how each block is called.

    Args:
        model: in eval mode. targets: names of its layers to quantize.
        batches: see ``run_batch``. reading: within this of a block's name it has its weights.

    Returns:
        The blocks; the whole model as one where it is no chain.

    Raises:
        ValueError: there is no batch.
    """
    if not batches:
        raise ArgumentValueError("quantize_: calibration gave no batch")
    targets = list(targets)
    blocks = find_blocks(model, targets)
    form = None
    if blocks:
        with reading(next(iter(blocks))):
            form = _form(model, blocks, batches[0])
    around = [Call((None, batch), {}, 0) for batch in batches]
    chain = None if form is None else _recorded(model, blocks, form, batches)
    if chain is None:
        whole = Around(model, {})
        return Chain({REST: whole}, {REST: around}, [torch.empty(0)] * len(batches))
    if any(not _within(x, blocks) for x in targets):
        chain.blocks = {**blocks, REST: Around(model, blocks, form[1])}  # type: ignore[index]
        chain.calls[REST] = around
    return chain
