"""Runs that all begin alike. Calibration runs a model and its blocks many times, and what one run
leaves behind (keys and values of past tokens, running statistics, counters) must not be seen by the
next, wherever a model keeps it.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

# Attributes that every module has, and those of libraries that come and go with hooks, which stay.
_BOOKKEEPING = frozenset(nn.Module().__dict__) | {
    "forward",
    "_old_forward",
    "_hf_hook",
    "_compiled_call_impl",
    "_output_capturing_hooks_installed",
}
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
_MISSING: Any = object()


def _is_leaf(value: Any) -> bool:
    """What is shared between runs: numbers, weights, modules, functions and configurations."""
    return (
        isinstance(value, (*_PLAIN, type, nn.Module, nn.Parameter, MethodType, torch.Stream))
        or callable(value)
        or type(value).__name__.endswith("Config")
        or not (isinstance(value, _COPIED) or hasattr(value, "__dict__"))
    )


_CONTAINERS = (tuple, list, set, frozenset, Mapping)
_COPIED = (Tensor, np.ndarray, torch.Generator, *_CONTAINERS)


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, _CONTAINERS):
        yield from value
    yield from getattr(value, "__dict__", {}).values()


def _copy_of_tensor(x: Tensor) -> Tensor:
    """With the same strides, since kernels are chosen by them."""
    if x.layout != torch.strided or type(x) is not Tensor or x.numel() == 0:
        return x.detach().clone()
    span = 1 + sum((size - 1) * step for size, step in zip(x.shape, x.stride(), strict=True))
    if span > 2 * x.numel():  # a few columns of something large
        return x.detach().clone()
    storage = x.detach().as_strided((span,), (1,)).clone()
    return storage.as_strided(x.shape, x.stride())


def _note_copies(value: Any, memo: dict[int, Any], visited: set[int]) -> None:
    """What ``copy.deepcopy`` puts in the place of tensors and of what is shared."""
    if id(value) in visited:
        return
    visited.add(id(value))
    if _is_leaf(value):
        memo[id(value)] = value
    elif isinstance(value, Tensor):
        memo[id(value)] = _copy_of_tensor(value)
    elif isinstance(value, torch.Generator):
        memo[id(value)] = value.clone_state()
    elif not isinstance(value, np.ndarray):
        for part in _parts(value):
            _note_copies(part, memo, visited)


def fresh(value: Any) -> Any:
    """A copy that a run may write to: tensors, containers and caches are copied, whatever else is
    in them is shared; what occurs twice stays one object.

    Args:
        value: arguments of a module, say; gradients do not flow to them.
    """
    memo: dict[int, Any] = {}
    _note_copies(value, memo, set())
    return copy.deepcopy(value, memo)


def same(a: Any, b: Any) -> bool:
    """Whether two values are alike to a run: tensors by their elements, objects by their parts. NaN
    is not like itself."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        alike = a.shape == b.shape and a.dtype == b.dtype and a.device == b.device
        return alike and (a.is_meta or torch.equal(a, b))
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    if isinstance(a, torch.Generator):
        return torch.equal(a.get_state(), b.get_state())
    if _is_leaf(a):
        return bool(a == b) if isinstance(a, _PLAIN) else False
    if isinstance(a, Mapping) and list(a) != list(b):
        return False
    if isinstance(a, (set, frozenset)):
        return bool(a == b)
    if list(getattr(a, "__dict__", ())) != list(getattr(b, "__dict__", ())):
        return False
    mine, theirs = list(_parts(a)), list(_parts(b))
    return len(mine) == len(theirs) and all(map(same, mine, theirs))


class _Generators:
    """The global generators of random numbers, as they were when this was made."""

    def __init__(self) -> None:
        self._torch = torch.get_rng_state()
        used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        self._cuda = torch.cuda.get_rng_state_all() if used else None
        self._numpy, self._python = np.random.get_state(), random.getstate()

    def restore(self) -> None:
        torch.set_rng_state(self._torch)
        if self._cuda is not None:
            torch.cuda.set_rng_state_all(self._cuda)
        np.random.set_state(self._numpy)
        random.setstate(self._python)


class State:
    """What runs of some modules may leave behind: buffers, attributes and random numbers.

    While it is entered, the modules have copies of their buffers and attributes, so that what the
    caller holds is never written to, and :meth:`run` begins from what they were.

    Args:
        modules: that are run; their children are not added.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        lazy = torch.nn.modules.lazy.LazyModuleMixin  # the first run makes another module of it
        self._modules = [x for x in dict.fromkeys(modules) if not isinstance(x, lazy)]
        self._parameters = [
            p for x in self._modules for p in x._parameters.values() if p is not None
        ]
        self._generators = _Generators()
        self._take()

    def _take(self) -> None:
        """What there is now is what runs begin from."""
        self._plain: list[dict[str, Any]] = []  # of each module: name -> what no run can write to
        self._kept: list[dict[tuple[str, str], Any]] = []  # the rest: (where, name) -> value
        for module in self._modules:
            found = {
                ("attribute", k): v for k, v in module.__dict__.items() if k not in _BOOKKEEPING
            }
            found |= {("buffer", k): v for k, v in module._buffers.items()}
            self._plain.append(
                {k: v for (w, k), v in found.items() if w == "attribute" and _is_leaf(v)}
            )
            self._kept.append(
                {(w, k): v for (w, k), v in found.items() if w == "buffer" or not _is_leaf(v)}
            )
        self._leave_what_cannot_be_copied()
        self._pristine = fresh(self._kept)
        self._bound = self._kept

    def _leave_what_cannot_be_copied(self) -> None:
        """Open files, locks and the like stay where they are."""
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
        self._reset()
        self._bind(self._kept)

    def _bind(self, values: list[dict[tuple[str, str], Any]]) -> None:
        self._bound = values
        for module, own in zip(self._modules, values, strict=True):
            for (where, name), value in own.items():
                (module._buffers if where == "buffer" else module.__dict__)[name] = value

    def _is_pristine(self) -> bool:
        for module, bound, pristine in zip(self._modules, self._bound, self._pristine, strict=True):
            if len(module._buffers) != sum(where == "buffer" for where, _ in bound):
                return False
            for (where, name), value in bound.items():
                held = module._buffers if where == "buffer" else module.__dict__
                if held.get(name, _MISSING) is not value or not same(value, pristine[where, name]):
                    return False
        return True

    @contextmanager
    def run(self) -> Iterator[None]:
        """Within this the modules run, from what they were. Where that writes to weights (RWKV
        scales them once and notes that it did), what it leaves is what later runs begin from."""
        self._reset()
        versions = [_version(p) for p in self._parameters]
        try:
            yield
        finally:
            if [_version(p) for p in self._parameters] != versions:
                self._take()
                self._bind(fresh(self._pristine))

    def _reset(self) -> None:
        for module, plain, kept in zip(self._modules, self._plain, self._kept, strict=True):
            held = module.__dict__
            for name in [x for x in held if x not in plain and x not in _BOOKKEEPING]:
                if ("attribute", name) not in kept:
                    del held[name]
            for name, value in plain.items():
                if held.get(name, _MISSING) is not value:
                    held[name] = value
        if not self._is_pristine():
            for module, kept in zip(self._modules, self._kept, strict=True):
                for name in [x for x in module._buffers if ("buffer", x) not in kept]:
                    del module._buffers[name]
            self._bind(fresh(self._pristine))
        self._generators.restore()


def run_batch(model: nn.Module, batch: Any) -> Any:
    """model(**batch) for a mapping, model(*batch) for a tuple or list, else model(batch)."""
    if isinstance(batch, Mapping):
        return model(**batch)
    if isinstance(batch, (tuple, list)):
        return model(*batch)
    return model(batch)


def _version(parameter: Tensor) -> int:
    return -1 if parameter.is_inference() else parameter._version


def _with_use_cache(model: nn.Module) -> Iterator[Any]:
    """Every configuration below the model that says whether keys and values are kept."""
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
    """Every module is in eval mode; afterwards each is in the mode in which it was."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def without_cache(model: nn.Module) -> Iterator[None]:
    """No configuration below the model asks for keys and values of past tokens to be kept."""
    kept = [(x, x.use_cache) for x in _with_use_cache(model)]
    try:
        for x, _ in kept:
            x.use_cache = False
        yield
    finally:
        for x, value in kept:
            x.use_cache = value


def fresh_batch(batch: Any) -> Any:
    """A copy of a batch that a run may write to (a cache in it, say), which asks for no cache."""
    if isinstance(batch, Mapping):
        named = fresh(dict(batch.items()))
        return {**named, "use_cache": False} if named.get("use_cache") else named
    return fresh(list(batch) if isinstance(batch, (tuple, list)) else batch)


class Runs:
    """Runs of a model, each from the state in which the model was when this was entered.

    Args:
        model: in eval mode. aside: modules that are not run or that somebody else resets.
    """

    def __init__(self, model: nn.Module, aside: Iterable[nn.Module] = ()) -> None:
        self._model, self._stack = model, ExitStack()
        self._aside = {x for block in aside for x in block.modules()}

    def __enter__(self) -> Runs:
        with ExitStack() as stack:
            stack.enter_context(without_cache(self._model))
            modules = (x for x in self._model.modules() if x not in self._aside)
            self._state = stack.enter_context(State(modules))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @contextmanager
    def of(self, batch: Any) -> Iterator[Any]:
        """Within this the model runs once, with the copy of the batch that this gives."""
        with self._state.run():
            yield fresh_batch(batch)

    def __call__(self, batch: Any) -> Any:
        """What the model gives for a batch, see ``run_batch``; the batch is not written to."""
        with self.of(batch) as given:
            return run_batch(self._model, given)
