"""The arguments and results of modules: tensors in tuples, mappings and objects. They are copied,
compared, and taken apart into tensors and the rest.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from types import MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..ops.errors import ArgumentValueError

PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
# Handles of hooks know the dictionary that these are in: copies of them do not work.
_SHARED = (type, nn.Module, nn.Parameter, MethodType, torch.Stream, RemovableHandle)
_CONTAINERS = (tuple, list, set, frozenset, Mapping)
_COPIED = (Tensor, np.ndarray, torch.Generator, *_CONTAINERS)
_WORDS = 1 << 16  # words that are multiplied by numbers of their own; more are taken in turns


def is_leaf(value: Any) -> bool:
    """Tell whether a value is shared between runs: numbers, weights, modules, functions and
    configurations are."""
    return (
        isinstance(value, (*PLAIN, *_SHARED))
        or callable(value)
        or type(value).__name__.endswith("Config")
        or not (isinstance(value, _COPIED) or hasattr(value, "__dict__"))
    )


def _named_parts(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, _CONTAINERS):
        yield from enumerate(value)
    yield from ((f".{name}", x) for name, x in getattr(value, "__dict__", {}).items())


def _copy_of_tensor(x: Tensor) -> Tensor:
    """Copy a tensor with its strides, since kernels are chosen by them."""
    if x.layout != torch.strided or type(x) is not Tensor or x.numel() == 0:
        return x.detach().clone()
    span = 1 + sum((size - 1) * step for size, step in zip(x.shape, x.stride(), strict=True))
    if span > 2 * x.numel():  # a few columns of something large
        return x.detach().clone()
    storage = x.detach().as_strided((span,), (1,)).clone()
    return storage.as_strided(x.shape, x.stride())


def _note_copies(value: Any, memo: dict[int, Any], visited: set[int]) -> None:
    """Note what ``copy.deepcopy`` puts in the place of tensors and of values that are shared."""
    if id(value) in visited:
        return
    visited.add(id(value))
    if id(value) in memo:
        return
    if is_leaf(value):
        memo[id(value)] = value
    elif isinstance(value, Tensor):
        memo[id(value)] = _copy_of_tensor(value)
    elif isinstance(value, torch.Generator):
        memo[id(value)] = value.clone_state()
    elif not isinstance(value, np.ndarray):
        for _, part in _named_parts(value):
            _note_copies(part, memo, visited)


def fresh(value: Any, instead: Mapping[int, Any] | None = None) -> Any:
    """Copy a value so that a run may write to the copy: tensors, containers and caches are copied,
    whatever else is in them is shared; what occurs twice stays one object.

    Args:
        value: arguments of a module, say; gradients do not flow to them.
        instead: id of an object in it -> what the copy has in its place, as it is.
    """
    memo: dict[int, Any] = dict(instead or {})
    _note_copies(value, memo, set())
    return copy.deepcopy(value, memo)


def refilled(value: Any, instead: Mapping[int, Any]) -> Any:
    """Make the same containers and objects anew, around the same tensors.

    Args:
        value: as of :func:`fresh`. instead: id of an object in it -> what is there in its place.
    """
    kept = {id(x): x for _, x in Apart(value).tensors}
    return fresh(value, {**kept, **instead})


def first_tensor(value: Any) -> Tensor:
    """Return the first of the floating tensors in what a module returns: its output in the narrow
    sense.

    Raises:
        ValueError: there is none.
    """
    for _, x in Apart(value).tensors:
        if x.is_floating_point():
            return x
    raise ArgumentValueError(
        "calibration: a block must return a floating tensor, or several values with one among "
        f"them, got a {type(value).__name__}"
    )


def same(a: Any, b: Any) -> bool:
    """Tell whether two values are alike to a run: tensors by their elements, objects by their
    parts. NaN is not like itself."""
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
    if is_leaf(a):
        return bool(a == b) if isinstance(a, (*PLAIN, MethodType)) else False
    if isinstance(a, (set, frozenset)):
        return bool(a == b)
    mine, theirs = list(_named_parts(a)), list(_named_parts(b))
    return len(mine) == len(theirs) and all(
        n == m and same(x, y) for (n, x), (m, y) in zip(mine, theirs, strict=True)
    )


class Number(int):
    """A number that stands for a tensor: its place in ``Apart.tensors``."""


class Apart:
    """A value taken apart.

    Attributes:
        tensors: each once, in the order in which they are met, with the path to it.
        rest: (path, what is there) of everything else: the type of a container, a number, a
            module; for a tensor that was met before the number that it has in ``tensors``.
    """

    def __init__(self, value: Any) -> None:
        self.tensors: list[tuple[tuple[Any, ...], Tensor]] = []
        self.rest: list[tuple[tuple[Any, ...], Any]] = []
        self._numbers: dict[int, int] = {}
        self._visited: list[Any] = []
        self._take((), value)

    def _take(self, path: tuple[Any, ...], value: Any) -> None:
        if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
            number = self._numbers.setdefault(id(value), len(self.tensors))
            if number == len(self.tensors):
                self.tensors.append((path, value))
            self.rest.append((path, Number(number)))
        elif is_leaf(value) or isinstance(value, (np.ndarray, torch.Generator, set, frozenset)):
            self.rest.append((path, value))
        else:
            self.rest.append((path, type(value)))
            if any(value is x for x in self._visited):
                return
            self._visited.append(value)
            for name, part in _named_parts(value):
                self._take((*path, name), part)

    def has_like(self, other: Apart) -> bool:
        """Tell whether another value is the same but for the elements of its tensors."""
        return len(self.rest) == len(other.rest) and all(
            at == there and same(x, y)
            for (at, x), (there, y) in zip(self.rest, other.rest, strict=True)
        )


@cache
def _numbers(device: torch.device) -> Tensor:
    """Return odd random numbers, int64 ``[2, _WORDS]``."""
    generator = torch.Generator().manual_seed(0x5EED)
    found = torch.randint(-(2**62), 2**62, (2, _WORDS), generator=generator)
    return (found * 2 + 1).to(device)


def summed(x: Tensor) -> tuple[int, int]:
    """Return two sums of the elements' bits times odd random numbers modulo 2^64, computed where
    the tensor is: tensors that differ anywhere have the same by a chance of about 2^-66."""
    raw = x.contiguous().reshape(-1).view(torch.uint8)
    raw = torch.nn.functional.pad(raw, (0, -len(raw) % 4))
    words, numbers = raw.view(torch.int32), _numbers(x.device)
    total = torch.zeros(2, dtype=torch.int64, device=x.device)
    for i in range(-(-len(words) // _WORDS)):
        part = words[i * _WORDS : (i + 1) * _WORDS]
        sums = (part.long() * numbers[:, : len(part)]).sum(1)
        total += sums * numbers[:, i % _WORDS] + i
    first, second = total.tolist()
    return first, second


def digest(x: Tensor) -> tuple[Any, ...]:
    """Return what tells a tensor from every other: dtype, shape, strides and device, and its
    bits."""
    x = x.detach()
    known: tuple[Any, ...] = (x.dtype, tuple(x.shape), x.device, x.layout)
    if x.is_meta or x.layout != torch.strided or type(x) is not Tensor:
        return (*known, id(x))  # nothing is like it
    known = (*known, x.stride())
    if x.numel() == 0:
        return known
    if x.is_conj() or x.is_neg():
        x = x.resolve_conj().resolve_neg()
    if x.device.type != "cpu":
        return (*known, *summed(x))
    raw: Any = x.contiguous().reshape(-1).view(torch.uint8).numpy()
    return (*known, hashlib.sha256(raw).digest())
