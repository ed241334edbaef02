"""The contracts of the ops (csrc/contract, csrc/ops/<op>/contract.cpp), as Python needs them: the
library checks a call that is described to it, and results are made from the contract's sizes. A
fake kernel does both.

Where a size is a symbol its example is checked, so that no graph is tied to more than its kernels
ask; where it has none, since it depends on data, the check is left to the run.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from .errors import as_its_kind
from .problem import ceil_div, num_groups, round_up

# (arguments by name) -> the result, of an op whose sizes are no formula
Made = Callable[..., Any]

# As csrc/contract/given.h has them; kinds of devices that it does not know get the next numbers.
_DEVICES = {"cpu": 0, "cuda": 1, "meta": 2}


class _NoExampleError(Exception):
    """A size that depends on data."""


def _number(x: Any) -> Any:
    """The number itself, or the example of a symbol."""
    if not isinstance(x, torch.SymInt | torch.SymFloat | torch.SymBool):
        return x
    if x.node.hint is None:
        raise _NoExampleError
    return x.node.hint


def _ints(values: Any) -> list[int]:
    return [int(_number(x)) for x in values]


def _list(x: Any) -> list[int]:
    items = [x, x] if isinstance(x, int) else x  # an int stands for two
    return [len(items), *_ints(items)]


def _tensor(x: Tensor | None) -> tuple[str, list[int]]:
    if x is None:
        return "", []
    device = _DEVICES.setdefault(x.device.type, len(_DEVICES))
    index = -1 if x.device.index is None else x.device.index
    numbers = [device, index, x.dim(), *_ints(x.shape), *_ints(x.stride())]
    return _name(x.dtype), numbers


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# By the type in a schema: a word, or none, and numbers (csrc/ops/ask.cpp).
_DESCRIBED: dict[str, Callable[[Any], tuple[str | None, list[int]]]] = {
    "Tensor": _tensor,
    "Tensor?": _tensor,
    "Tensor[]": lambda x: (None, []),
    "int": lambda x: (None, [int(_number(x))]),
    "int?": lambda x: (None, [-1] if x is None else [1, int(_number(x))]),
    "bool": lambda x: (None, [int(_number(x))]),
    "float": lambda x: (float(_number(x)).hex(), []),
    "float?": lambda x: ("" if x is None else float(_number(x)).hex(), []),
    "str": lambda x: (x, []),
    "ScalarType": lambda x: (_name(x), []),
    "int[2]": lambda x: (None, _list(x)),
    "int[2]?": lambda x: (None, [-1] if x is None else _list(x)),
}


@functools.lru_cache(maxsize=4096)  # layers of a model repeat; what is refused is not kept
def _refuse(name: str, words: str, numbers: tuple[int, ...]) -> None:
    try:
        with _disable_current_modes():  # a fake mode would look for a fake of _check
            torch.ops.mixed_gemm._check(name, words, list(numbers))
    except RuntimeError as error:
        raise as_its_kind(error) from None


_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "groups": lambda k, size: num_groups(k, size),
    "blocks": lambda k, size: 1 if size == -1 else ceil_div(k, size),
    "round_up": round_up,
    "times": lambda a, b: a * b,
    "over": lambda a, b: a // b,
}


def _size(tokens: list[Any], symbols: dict[str, Any]) -> Any:
    """A size from its tokens in postfix order; a symbol where its symbols are."""
    stack: list[Any] = []
    for token in tokens:
        if token in _OPERATIONS:
            second = stack.pop()
            stack.append(_OPERATIONS[token](stack.pop(), second))
        else:
            stack.append(symbols[token] if isinstance(token, str) else token)
    return stack[0]


@dataclass(frozen=True)
class Contract:
    """The contract of one op.

    arguments: names with their types in the schema, in order.
    symbols: name -> (argument, dimension, factor), factor 0 where it is the argument itself.
    chosen: of a symbol that a name binds, name -> its value.
    used: the symbols of its shapes and results.
    results: as csrc/contract/text.cpp writes them.
    """

    name: str
    arguments: dict[str, str]
    symbols: dict[str, tuple[str, int, int]]
    chosen: dict[str, dict[str, int]]
    used: tuple[str, ...]
    results: tuple[dict[str, Any], ...]

    def check(self, given: dict[str, Any]) -> None:
        """Raise what a kernel of the op would refuse the call with, but for freed storages and
        what it reads.

        Args:
            given: every argument, by name.
        """
        words: list[str] = []
        numbers: list[int] = []
        try:
            for argument, kind in self.arguments.items():
                word, more = _DESCRIBED[kind](given[argument])
                numbers += more
                if word is not None:
                    words.append(word)
        except _NoExampleError:
            return
        _refuse(self.name, "\n".join(words), tuple(numbers))

    def _symbol(self, symbol: str, given: dict[str, Any]) -> Any:
        argument, dimension, factor = self.symbols[symbol]
        x = given[argument]
        if symbol in self.chosen:
            values = self.chosen[symbol]
            return values.get(x, next(iter(values.values())))  # another name is refused by the run
        if factor == 0:
            return -1 if x is None else x
        return x.shape[dimension] if factor == 1 else x.shape[dimension] * factor

    def _result(self, result: dict[str, Any], given: dict[str, Any]) -> Tensor | None:
        if result["unless"] and given[result["unless"]]:
            return None
        like: Tensor = given[result["like"]]
        needed = {x for size in result["sizes"] for x in size if x in self.symbols}
        symbols = {x: self._symbol(x, given) for x in needed}
        sizes = [_size(tokens, symbols) for tokens in result["sizes"]]
        shape = {"like": like.shape, "leading": (*like.shape[:-1], *sizes), "sizes": sizes}
        dtype = like.dtype
        if result["dtype"]:
            dtype = getattr(torch, result["dtype"])
        elif result["dtype_of"]:
            dtype = given[result["dtype_of"]]
        return like.new_empty(shape[result["form"]], dtype=dtype)

    def made(self, given: dict[str, Any]) -> Any:
        """The results, without numbers."""
        results = tuple(self._result(x, given) for x in self.results)
        return results[0] if len(results) == 1 else results


@functools.cache
def contracts() -> dict[str, Contract]:
    """The contracts of the library, by the name of their op, in the order of docs/ops.md."""
    rows = json.loads(torch.ops.mixed_gemm._contracts())
    return {
        row["name"]: Contract(
            row["name"],
            dict(row["arguments"]),
            {name: tuple(x) for name, x in row["symbols"].items()},
            row["chosen"],
            tuple(row["used"]),
            tuple(row["results"]),
        )
        for row in rows
    }


def _kernel(name: str, made: Made | None) -> Callable[..., Any]:
    contract = contracts()[name]
    names = tuple(contract.arguments)
    schema = getattr(torch.ops.mixed_gemm, name).default._schema.arguments
    defaults = {x.name: x.default_value for x in schema if x.has_default_value()}

    def kernel(*args: Any, **options: Any) -> Any:
        given = {**defaults, **dict(zip(names, args, strict=False)), **options}
        contract.check(given)
        return contract.made(given) if made is None else made(**given)

    return kernel


def register(fakes: Mapping[str, Made | Literal[True]]) -> None:
    """Register the fake kernels of ops: what a kernel would refuse, then the result without its
    numbers.

    Args:
        fakes: by name, what gives the result where the contract has no sizes of it, else True.
    """
    for name, made in fakes.items():
        torch.library.register_fake(
            f"mixed_gemm::{name}", _kernel(name, None if made is True else made)
        )
