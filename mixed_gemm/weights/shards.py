"""Questions of a module about a weight whose shards lie on several ranks, a DTensor.
``distributed`` answers them: it registers its functions here once torch.distributed.tensor is
imported, and before that there is no such weight.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from torch import Tensor

from .scheme import Scheme
from .tensor import QuantizedTensor

Function = TypeVar("Function", bound=Callable[..., Any])

_ANSWERS: dict[str, Callable[..., Any]] = {}


def answers(function: Function) -> Function:
    """Register the function that the one of its name here calls."""
    _ANSWERS[function.__name__] = function
    return function


def whole(weight: Any, scheme: Scheme | None = None) -> QuantizedTensor:
    """The weight of all ranks together, still quantized; see ``distributed.weight``."""
    found: QuantizedTensor = _ANSWERS["whole"](weight, scheme)
    return found


def state_of(weight: Any, scheme: Scheme) -> dict[str, Tensor]:
    """Its parts as a state_dict has them; see ``distributed.weight``."""
    found: dict[str, Tensor] = _ANSWERS["state_of"](weight, scheme)
    return found


def fill(weight: Any, scheme: Scheme, given: Mapping[str, Tensor]) -> list[str]:
    """Copy the parts of a state_dict into this rank's shard; see ``distributed.weight``."""
    found: list[str] = _ANSWERS["fill"](weight, scheme, given)
    return found


def slice_like(tensor: Tensor, like: Any) -> Tensor:
    """A tensor that every rank has whole, sharded as ``like``; see ``distributed.weight``."""
    found: Tensor = _ANSWERS["slice_like"](tensor, like)
    return found


def linear(x: Tensor, weight: Any, bias: Tensor | None) -> Tensor:
    """``x @ w.T + bias``; see ``distributed.weight``."""
    found: Tensor = _ANSWERS["linear"](x, weight, bias)
    return found


def plain_shard(weight: Any) -> Any:
    """Return what a linear layer multiplies by in its place; see ``distributed.plain_shard``."""
    return _ANSWERS["plain_shard"](weight)
