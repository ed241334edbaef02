"""Several quantized weights as one, whose rows are theirs: one product in place of several.

Every weight keeps its parts as slices of those of the whole, so that nothing is stored twice. A
weight begins at a row that is a multiple of 64, which is the padding of the packed layout and an
aligned address of every other part; rows in between are zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..ops.errors import dtype_name
from ..ops.problem import PAD_N
from .fp8_blocks import block_of
from .tensor import QuantizedTensor

# Each row: what two weights must have in common, how it is compared, and the text of it.
_ALIKE: tuple[tuple[str, Callable[[Any], Any], Callable[[Any], str]], ...] = (
    ("kind of weight", type, lambda w: w.kind),
    ("scheme", lambda w: w.scheme, lambda w: str(w.scheme)),
    ("dtype", lambda w: w.dtype, lambda w: dtype_name(w.dtype)),
    ("device", lambda w: w.device, lambda w: str(w.device)),
    ("in_features", lambda w: w.shape[1], lambda w: str(w.shape[1])),
    ("parts", lambda w: {k: x.dtype for k, x in w.tensors().items()}, lambda w: _described(w)),
)


def _described(weight: QuantizedTensor) -> str:
    return ", ".join(f"{name} {dtype_name(x.dtype)}" for name, x in weight.tensors().items())


def shared_parts(weight: QuantizedTensor) -> dict[str, Tensor]:
    """Name -> tensor, of the parts that do not run along the rows: what activations are multiplied
    by, ordered by or divided by.

    Args:
        weight: ``[N, K]``.
    """
    along = {part.name: part.rows for part in weight.parts}
    return {name: x for name, x in weight.tensors().items() if along[name] is None}


def why_apart(first: QuantizedTensor, other: QuantizedTensor) -> str:
    """Why the rows of two weights are not those of one; empty where they are.

    Args:
        first, other: ``[N, K]`` and ``[M, K]``, whose parts have storage.
    """
    for what, key, text in _ALIKE:
        if key(first) != key(other):
            return f"its {what} is {text(other)}, beside {text(first)}"
    others = shared_parts(other)
    for name, tensor in shared_parts(first).items():
        if not torch.equal(tensor, others[name]):
            return f"its {name} has other values"
    return ""


@dataclass(frozen=True)
class Joined:
    """Weights that became one.

    Attributes:
        whole: ``[T, K]``.
        places: (first row, rows) of each.
        parts: of each, name -> its slice of that part of the whole. Parts that do not run along
            the rows are in none of them.
    """

    whole: QuantizedTensor
    places: tuple[tuple[int, int], ...]
    parts: tuple[dict[str, Tensor], ...]


def row_step(weight: QuantizedTensor) -> int:
    """The number of which the first row of each weight in a whole is a multiple.

    Args:
        weight: ``[N, K]``, one of them.
    """
    block = block_of(weight.scheme, tuple(weight.shape))  # rows of a block share a scale
    return math.lcm(PAD_N, 1 if block is None else block[0])


def joined(weights: Sequence[QuantizedTensor]) -> Joined:
    """The whole, with storage of its own, and the slices of it that are to be the parts of the
    weights. The weights are left alone.

    Args:
        weights: ``[N, K]`` each, between which :func:`why_apart` finds nothing.
    """
    first = weights[0]
    kind, scheme, k = type(first), first.scheme, first.shape[1]
    step = row_step(first)
    starts = [0]
    for weight in weights:
        starts.append(starts[-1] + -(-weight.shape[0] // step) * step)
    places = tuple(zip(starts[:-1], (w.shape[0] for w in weights), strict=True))
    count = sum(places[-1])
    rows = {part.name: part.rows for part in first.parts if part.rows is not None}
    shapes = kind.shapes((count, k), scheme)
    parts = {
        name: tensor.new_zeros(shapes[name]) if name in rows else tensor
        for name, tensor in first.tensors().items()
    }
    slices: list[dict[str, Tensor]] = []
    for weight, (start, _) in zip(weights, places, strict=True):
        before = kind.shapes((start, k), scheme)
        mine: dict[str, Tensor] = {}
        for name, tensor in weight.tensors().items():
            if (dim := rows.get(name)) is not None:
                begins = before[name][dim] if start else 0
                mine[name] = parts[name].narrow(dim, begins, tensor.shape[dim])
                _copy(mine[name], tensor)
        slices.append(mine)
    return Joined(kind(parts, scheme, (count, k), first.dtype), places, tuple(slices))


def _copy(target: Tensor, source: Tensor) -> None:
    """Copy bytes: float8 is not copied on every device."""
    if source.element_size() == 1:
        target, source = target.view(torch.uint8), source.view(torch.uint8)
    target.copy_(source)


def same_memory(a: Tensor, b: Tensor) -> bool:
    """Whether two plain tensors are the same elements in memory.

    Args:
        a, b: of any shape; what lies on the meta device has no memory.
    """
    return a is b or (
        not a.is_meta
        and a.device == b.device
        and (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
        and a.data_ptr() == b.data_ptr()
    )
