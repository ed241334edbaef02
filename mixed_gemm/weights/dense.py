"""Operators of torch that have no rule of their own for quantized weights: they run on the dense
value. Their schemas say what they write and what they return views of: a weight that was written is
rounded to its scheme again, and a view of it is a :class:`Seen`, through which it can be written.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from .dependents import fill
from .rules import for_all_others
from .tensor import Dispatched, QuantizedTensor
from .views import Seen, Step, WeightView, dense_of
from .writing import rounded_like

# Operators over several processes: some return before they have written, and none of c10d says in
# its schema what it writes. It is the first argument of those whose names end in an underscore.
_COLLECTIVES = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "symm_mem")


@dataclass(frozen=True)
class Effects:
    """The arguments of an operator, as its schema tells of them.

    Attributes:
        writes: names of those that it writes into. views: places of those that it returns views of.
        names: of all of them, in their order.
    """

    writes: frozenset[str]
    views: tuple[int, ...]
    names: tuple[str, ...]


@functools.cache
def effects_of(func: Any) -> Effects:
    """Tell what an operator does to its arguments.

    Args:
        func: an ``OpOverload``; a higher-order operator, which has no schema, only reads.
    """
    schema = getattr(func, "_schema", None)
    if schema is None:
        return Effects(frozenset(), (), ())
    names = tuple(argument.name for argument in schema.arguments)
    aliased = [(i, a) for i, a in enumerate(schema.arguments) if a.alias_info is not None]
    writes = {a.name for _, a in aliased if a.alias_info.is_write}
    if getattr(func, "namespace", "") == "c10d" and schema.name.endswith("_"):
        writes |= set(names[:1])
    views = tuple(i for i, a in aliased if not a.alias_info.is_write)
    return Effects(frozenset(writes), () if writes else views, names)


@for_all_others
def on_dense(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The answer to one operator.

    Args:
        func: an operator of torch. args, kwargs: its arguments, with quantized weights or views of
            them anywhere in them.

    Raises:
        NotImplementedError: it would give a weight another shape or another memory, or write into
            one while other processes take part.
        ValueError: it would write NaN or infinity into a weight.
    """
    effects = effects_of(func)
    written = [x for x in _written(effects, args, kwargs) if isinstance(x, Dispatched)]
    if written:
        return _write(func, args, kwargs, written)
    for place in effects.views:
        if place < len(args) and isinstance(args[place], QuantizedTensor | WeightView):
            return _view(func, args, kwargs, place)
    return func(*tree_map(_dense, args), **tree_map(_dense, kwargs))


def _written(effects: Effects, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Any]:
    if effects.writes:
        for name, value in (*zip(effects.names, args, strict=False), *kwargs.items()):
            if name in effects.writes:
                yield from tree_leaves(value)


def _dense(x: Any) -> Any:
    if isinstance(x, QuantizedTensor):
        return dense_of(x)
    return x.dense() if isinstance(x, WeightView) else x


# --- views ---------------------------------------------------------------------------------------


def _view(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], place: int) -> Any:
    """Return what the operator does; what lies in the dense value comes as a view of the weight."""
    x, rest = args[place], tree_map(_dense, (*args[:place], None, *args[place + 1 :]))
    value, named = _dense(x), tree_map(_dense, kwargs)
    # Compilers exchange storages while they trace; there the schema alone says what is a view.
    whole = value.untyped_storage()._cdata if type(value) is Tensor else None
    out = func(*rest[:place], value, *rest[place + 1 :], **named)

    def seen(found: Any, index: int) -> Any:
        if not isinstance(found, Tensor):
            return found
        if whole is not None and found.untyped_storage()._cdata != whole:
            return found
        step = Step(func, rest, tuple(named.items()), place, index)
        if isinstance(x, Seen):
            return Seen(x.weight, (*x.steps, step), found)
        if isinstance(x, WeightView):
            first = Step(lambda dense: x.replay(dense), (None,), (), 0)
            return Seen(x.weight, (first, step), found)
        return Seen(x, (step,), found)

    if isinstance(out, list | tuple):
        return type(out)(seen(each, i) for i, each in enumerate(out))
    return seen(out, -1)


# --- writes --------------------------------------------------------------------------------------


@dataclass
class _Roots:
    """Dense copies of weights while an operator writes into them.

    Attributes:
        wanted: first parts of those that it writes. copies: first part -> (weight, copy).
        given: id of a tensor among the arguments -> the dense one in its place.
    """

    wanted: set[int]
    copies: dict[int, tuple[QuantizedTensor, Tensor]] = field(default_factory=dict)
    given: dict[int, Tensor] = field(default_factory=dict)

    def dense(self, x: Any) -> Any:
        if not isinstance(x, Dispatched):
            return x
        if id(x) not in self.given:
            root, replay = _seat(x)
            key = _key(root)
            if key not in self.wanted:
                return _dense(x)
            if key not in self.copies:
                self.copies[key] = root, dense_of(root)
            self.given[id(x)] = replay(self.copies[key][1])
        return self.given[id(x)]


def _key(root: QuantizedTensor) -> int:
    return id(root._stored()[0])


def _same(dense: Tensor) -> Tensor:
    return dense


def _seat(x: Any) -> tuple[QuantizedTensor, Callable[[Tensor], Tensor]]:
    """(the weight that holds the numbers of ``x``, where in its dense value those are).

    Raises:
        NotImplementedError: they are columns that the weight stores in another order.
    """
    if isinstance(x, WeightView):
        root, inner = _seat(x.weight)
        return root, lambda dense: x.replay(inner(dense))
    if x.piece_of is None:
        return x, _same
    whole, dim, start = x.piece_of
    root, inner = _seat(whole)
    if dim == 1 and getattr(whole, "permutation", None) is not None:
        raise NotImplementedError(
            "QuantizedTensor: columns of a weight in act-order cannot be written apart. Hint: "
            "write into the whole weight"
        )
    return root, lambda dense: inner(dense).narrow(dim, start, x.shape[dim])


def _write(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], written: list[Any]) -> Any:
    if getattr(func, "namespace", "") in _COLLECTIVES:
        raise NotImplementedError(
            f"{func}: a collective does not write into a quantized weight, which it would have to "
            "round when all processes are done. Hint: dense = weight.dequantize(), send that, then "
            "weight.data = dense; or send each of weight.tensors()"
        )
    roots = _Roots({_key(_seat(x)[0]) for x in written})
    dense_args, dense_kwargs = tree_map(roots.dense, args), tree_map(roots.dense, kwargs)
    before = {id(x): _geometry(roots.dense(x)) for x in written}
    out = func(*dense_args, **dense_kwargs)
    if any(_geometry(roots.dense(x)) != before[id(x)] for x in written):
        raise NotImplementedError(
            f"{func}: a quantized weight cannot be written so, since it keeps its shape and has no "
            "memory of the dense value that could be exchanged. Hint: weight.data = dense rounds a "
            "dense tensor to its scheme, with another number of rows, too"
        )
    for root, dense in roots.copies.values():
        assign(root, rounded_like(root, dense))
    back = {id(dense): x for x in written for dense in (roots.dense(x),)}
    return tree_map(lambda x: back.get(id(x), x), out)


def _geometry(dense: Tensor) -> tuple[Any, ...]:
    storage = dense.untyped_storage()
    return dense.shape, dense.stride(), dense.storage_offset(), storage._cdata, storage.nbytes()


def assign(weight: QuantizedTensor, new: QuantizedTensor) -> None:
    """Write a weight, and through it into what it is a slice of.

    Args:
        weight: of any shape. new: stored alike, of that shape.
    """
    fill(weight, new)
    if weight.piece_of is not None:
        whole, dim, start = weight.piece_of
        stop, total = start + weight.shape[dim], whole.shape[dim]
        shards = [whole.cut(dim, a, b) for a, b in ((0, start), (stop, total)) if a < b]
        shards.insert(1 if start else 0, new)
        # Where rows share scales the shards have others than the whole, which rounds them again.
        join = type(whole).join if dim == 0 else type(whole).join_columns
        assign(whole, whole.converted(join(shards)))
