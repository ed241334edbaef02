"""Runs that all begin alike. Calibration runs a model and its blocks many times, and what one run
leaves behind (keys and values of past tokens, running statistics, counters) must not be seen by the
next, wherever a model keeps it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..nn.followed import FOLLOWING
from .values import fresh, is_leaf, same

# Attributes that every module has, those of ours that follow its parameters, and those of libraries
# that come and go with hooks, which stay.
BOOKKEEPING = frozenset((*nn.Module().__dict__, *FOLLOWING)) | {
    "joint",
    "place",
    "forward",
    "_old_forward",
    "_hf_hook",
    "_compiled_call_impl",
    "_output_capturing_hooks_installed",
}
_MISSING: Any = object()


class Generators:
    """The global generators of random numbers, as they were when this was made."""

    def __init__(self) -> None:
        self._torch = torch.get_rng_state()
        used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        self._cuda = torch.cuda.get_rng_state_all() if used else None
        self._numpy, self._python = np.random.get_state(), random.getstate()

    def are_same(self) -> bool:
        """Tell whether nothing was drawn since then."""
        drawn = not torch.equal(torch.get_rng_state(), self._torch)
        if self._cuda is not None:
            now = torch.cuda.get_rng_state_all()
            drawn |= any(not torch.equal(x, y) for x, y in zip(now, self._cuda, strict=True))
        return not (drawn or random.getstate() != self._python or self._numpy_drawn())

    def _numpy_drawn(self) -> bool:
        now: Any = np.random.get_state()
        then: Any = self._numpy
        return bool(now[2:] != then[2:] or (now[1] != then[1]).any())

    def restore(self) -> None:
        torch.set_rng_state(self._torch)
        if self._cuda is not None:
            torch.cuda.set_rng_state_all(self._cuda)
        np.random.set_state(self._numpy)
        random.setstate(self._python)


class State:
    """The state that runs of some modules may leave behind: buffers, attributes and random numbers.

    While it is entered, the modules have copies of their buffers and attributes, so that what the
    caller holds is never written to, and :meth:`run` begins from what they were.

    Args:
        modules: that are run; their children are not added.
        loaded: those of them whose buffers somebody else brings and takes away.
    """

    def __init__(self, modules: Iterable[nn.Module], loaded: Iterable[nn.Module] = ()) -> None:
        self._loaded = set(loaded)
        lazy = torch.nn.modules.lazy.LazyModuleMixin  # the first run makes another module of it
        self._modules = [x for x in dict.fromkeys(modules) if not isinstance(x, lazy)]
        self._parameters = [
            p for x in self._modules for p in x._parameters.values() if p is not None
        ]
        self._generators = Generators()
        self._take()

    def _take(self) -> None:
        """Let runs begin from what there is now."""
        # For each module: name -> a value that no run can write to.
        self._plain: list[dict[str, Any]] = []
        self._kept: list[dict[tuple[str, str], Any]] = []  # the rest: (where, name) -> value
        for module in self._modules:
            found = {
                ("attribute", k): v for k, v in module.__dict__.items() if k not in BOOKKEEPING
            }
            if module not in self._loaded:
                found |= {("buffer", k): v for k, v in module._buffers.items()}
            self._plain.append(
                {k: v for (w, k), v in found.items() if w == "attribute" and is_leaf(v)}
            )
            self._kept.append(
                {(w, k): v for (w, k), v in found.items() if w == "buffer" or not is_leaf(v)}
            )
        self._leave_what_cannot_be_copied()
        self._pristine = fresh(self._kept)
        self._bound = self._kept

    def _leave_what_cannot_be_copied(self) -> None:
        """Leave open files, locks and the like where they are."""
        try:
            fresh(self._kept)
        except Exception:
            for plain, kept in zip(self._plain, self._kept, strict=True):
                for where, name in list(kept):
                    try:
                        fresh(kept[where, name])
                    except Exception:
                        plain[name] = kept.pop((where, name))

    def __enter__(self) -> State:
        self._bind(fresh(self._pristine))
        return self

    def __exit__(self, *error: object) -> None:
        self.reset()
        self._bind(self._kept)

    def _bind(self, values: list[dict[tuple[str, str], Any]]) -> None:
        self._bound = values
        for module, own in zip(self._modules, values, strict=True):
            for (where, name), value in own.items():
                (module._buffers if where == "buffer" else module.__dict__)[name] = value

    def is_pristine(self, within: set[nn.Module] | None = None) -> bool:
        """Tell whether modules are what runs begin from.

        Args:
            within: the modules that are looked at; None: all.
        """
        rows = zip(self._modules, self._plain, self._bound, self._pristine, strict=True)
        return all(self._is_as_it_was(*row) for row in rows if within is None or row[0] in within)

    def _is_as_it_was(
        self,
        module: nn.Module,
        plain: dict[str, Any],
        bound: dict[Any, Any],
        pristine: dict[Any, Any],
    ) -> bool:
        own = {x: v for x, v in module.__dict__.items() if x not in BOOKKEEPING}
        buffers = {} if module in self._loaded else module._buffers
        if len(own) + len(buffers) != len(plain) + len(bound):
            return False
        for (where, name), value in bound.items():
            held = module._buffers if where == "buffer" else own
            if held.get(name, _MISSING) is not value or not same(value, pristine[where, name]):
                return False
        return all(own.get(name, _MISSING) is value for name, value in plain.items())

    @contextmanager
    def run(self) -> Iterator[None]:
        """Run the modules within this, from what they were. Where that writes to weights (RWKV
        scales them once and notes that it did), what it leaves is what later runs begin from."""
        self.reset()
        versions = [version(p) for p in self._parameters]
        try:
            yield
        finally:
            if [version(p) for p in self._parameters] != versions:
                self._take()
                self._bind(fresh(self._pristine))

    def reset(self) -> None:
        """Make everything what runs begin from."""
        rows = zip(self._modules, self._plain, self._bound, self._pristine, strict=True)
        if not all(self._is_as_it_was(*row) for row in rows):
            for module, plain, kept in zip(self._modules, self._plain, self._kept, strict=True):
                for name in [x for x in module.__dict__ if x not in BOOKKEEPING]:
                    if name not in plain and ("attribute", name) not in kept:
                        del module.__dict__[name]
                module.__dict__.update(plain)
                for name in [x for x in module._buffers if ("buffer", x) not in kept]:
                    if module not in self._loaded:
                        del module._buffers[name]
            self._bind(fresh(self._pristine))
        self._generators.restore()


class Stop(BaseException):
    """Ends a run once what is wanted of it is known. No model catches it, since it is none of its
    errors."""


@contextmanager
def replaced(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Give one module another ``forward``, for a while."""
    own = module.__dict__.get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if own is None:
            del module.forward
        else:
            module.forward = own


def run_batch(model: nn.Module, batch: Any) -> Any:
    """Run model(**batch) for a mapping, model(*batch) for a tuple or list, else model(batch)."""
    if isinstance(batch, Mapping):
        return model(**batch)
    if isinstance(batch, (tuple, list)):
        return model(*batch)
    return model(batch)


def version(parameter: Tensor) -> int:
    """Return how often a parameter was written to, as far as torch counts; -1 where it does not."""
    return -1 if parameter.is_inference() else parameter._version


def _with_use_cache(model: nn.Module) -> Iterator[Any]:
    """Yield every configuration below the model that says whether keys and values are kept."""
    visited: set[int] = set()

    def within(value: Any) -> Iterator[Any]:
        if id(value) in visited or not type(value).__name__.endswith("Config"):
            return
        visited.add(id(value))
        own = getattr(value, "__dict__", {})
        if "use_cache" in own:
            yield value
        for part in list(own.values()):
            yield from within(part)

    for module in model.modules():
        for value in list(module.__dict__.values()):
            yield from within(value)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put every module in eval mode; afterwards each is in the mode in which it was."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def frozen(parameters: Iterable[nn.Parameter]) -> Iterator[None]:
    """Let none of the parameters need gradients: with some, more is computed, and by other
    kernels."""
    trained = [p for p in parameters if p.requires_grad]
    try:
        for p in trained:
            p.requires_grad_(False)
        yield
    finally:
        for p in trained:
            p.requires_grad_(True)


@contextmanager
def without_cache(model: nn.Module) -> Iterator[None]:
    """Let no configuration below the model ask for keys and values of past tokens to be kept."""
    kept = [(x, x.use_cache) for x in _with_use_cache(model)]
    try:
        for x, _ in kept:
            x.use_cache = False
        yield
    finally:
        for x, value in kept:
            x.use_cache = value


def fresh_batch(batch: Any) -> Any:
    """Copy a batch, so that a run may write to it (a cache in it, say); the copy asks for no
    cache."""
    if isinstance(batch, Mapping):
        named = fresh(dict(batch.items()))
        return {**named, "use_cache": False} if named.get("use_cache") else named
    return fresh(list(batch) if isinstance(batch, (tuple, list)) else batch)


class Runs:
    """Runs of a model, each from the state in which the model was when this was entered.

    Args:
        model: in eval mode. aside: modules whose buffers somebody else brings and takes away.
    """

    def __init__(self, model: nn.Module, aside: Iterable[nn.Module] = ()) -> None:
        self._model, self._stack = model, ExitStack()
        self.aside = {x for block in aside for x in block.modules()}

    def __enter__(self) -> Runs:
        with ExitStack() as stack:
            stack.enter_context(without_cache(self._model))
            # TransformerEncoderLayer has a path that reads weights past the layers that hold them.
            fast: Any = torch.backends.mha
            stack.callback(fast.set_fastpath_enabled, fast.get_fastpath_enabled())
            fast.set_fastpath_enabled(False)
            self._state = stack.enter_context(State(self._model.modules(), self.aside))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def model(self) -> nn.Module:
        """The model that is run."""
        return self._model

    @property
    def state(self) -> State:
        """The state from which each run begins."""
        return self._state

    @contextmanager
    def of(self, batch: Any) -> Iterator[Any]:
        """Run the model once within this, with the copy of the batch that this gives."""
        with self._state.run():
            yield fresh_batch(batch)

    def __call__(self, batch: Any) -> Any:
        """Return the model's output for a batch, see ``run_batch``; the batch is not written to."""
        with self.of(batch) as given:
            return run_batch(self._model, given)
