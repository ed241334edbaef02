"""vmap: a batch of activations is one more leading dimension, and weights are shared. Where an op
takes or makes a weight alone, it is called once for each weight of a batch.

An op without a ``Batching`` is run by torch once for each element, with a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

# (op, arguments by name with the batch in front, names that have it) -> result, batch in front
Merge = Callable[[Any, dict[str, Any], set[str]], Any]


def leading(op: Any, given: dict[str, Any], batched: set[str]) -> Any:
    """The merge of an op whose activations may have any number of leading dimensions."""
    return op(**given)


@dataclass(frozen=True)
class Batching:
    """merged: arguments whose batch becomes part of one call, the activations first.
    looped: arguments whose batch takes a call for each element.
    merge: that one call.
    """

    merged: tuple[str, ...] = ()
    looped: tuple[str, ...] = ()
    merge: Merge = leading

    @property
    def over(self) -> tuple[str, ...]:
        """The arguments that may have a batch."""
        return (*self.merged, *self.looped)


def _loop(op: Any, given: dict[str, Any], batched: tuple[str, ...], size: int) -> Any:
    """Call the op for each element. A bias takes part in the one rounding of a call, so it cannot
    be added afterwards."""

    def element(take: Callable[[Any], Any]) -> Any:
        return op(**{**given, **{name: take(given[name]) for name in batched}})

    if size == 0:  # without elements there is no call; the fake kernel tells the shape
        one = {name: x[:1].new_empty(x.shape[1:]) for name, x in given.items() if name in batched}
        on_meta = tree_map_only(Tensor, lambda x: x.to("meta"), {**given, **one})
        like = given[batched[0]]
        return tree_map_only(
            Tensor, lambda x: like.new_empty((0, *x.shape), dtype=x.dtype), op(**on_meta)
        )
    results = [element(lambda x, i=i: x[i]) for i in range(size)]  # type: ignore[misc]
    if isinstance(results[0], tuple):
        return tuple(torch.stack(x) for x in zip(*results, strict=True))
    return torch.stack(results)


def _rule(op_name: str, row: Batching) -> Callable[..., tuple[Any, Any]]:
    op = getattr(torch.ops.mixed_gemm, op_name).default
    names = [x.name for x in op._schema.arguments if not x.kwarg_only]

    def rule(
        info: Any, in_dims: tuple[int | None, ...], *args: Any, **options: Any
    ) -> tuple[Any, Any]:
        given = dict(zip(names, args, strict=False))
        dims = {name: d for name, d in zip(names, in_dims, strict=False) if d is not None}
        if wrong := [name for name in dims if name not in row.over]:
            over = " and ".join(row.over)
            raise NotImplementedError(
                f"mixed_gemm::{op_name}: vmap runs over {over} only, got a batch of {wrong[0]} "
                f"(in_dims {in_dims}). Hint: loop over the layers"
            )
        given |= {name: given[name].movedim(d, 0) for name, d in dims.items()}
        if all(name in row.merged for name in dims):
            out = row.merge(op, {**given, **options}, set(dims))
        else:
            out = _loop(op, {**given, **options}, tuple(dims), info.batch_size)
        if isinstance(out, tuple):
            return out, tuple(None if x is None else 0 for x in out)
        return out, 0

    return rule


def register(rows: Mapping[str, Batching]) -> None:
    for name, row in rows.items():
        torch.library.register_vmap(f"mixed_gemm::{name}", _rule(name, row))
