"""How a call may be cut over the ranks of a device mesh: which dimension of which arguments, and of
the result. ``dtensor`` runs calls so; where no cut fits, every rank does all of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from torch import Tensor

from .problem import PAD_N

# The shapes of the tensors of a call; (n,) of an integer n; what integers a block_size has.
Sizes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Cut:
    """One way to cut a call over one dimension of the mesh.

    dims: argument -> the dimension of it that is cut; the other arguments are whole.
    result: the dimension of every result that is cut; None where none is.
    summed: whether the results of all ranks are added up, where somebody asks for their sum.
    """

    dims: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    result: int | None = None
    summed: bool = False


WHOLE = Cut()


@dataclass(frozen=True)
class Rows:
    """Every rank has some of the rows of the activations.

    what: the rows, in words.
    of: the activations.
    whole: how many of their last dimensions no rank may cut.
    per_row: arguments with an element for each row, or one for all.
    """

    what: str
    of: str
    whole: int = 1
    per_row: tuple[str, ...] = ()

    def cuts(self, sizes: Sizes, ranks: int) -> list[Cut]:
        """The cuts of a call of these sizes over so many ranks."""
        rows = sizes[self.of][: len(sizes[self.of]) - self.whole]
        dims = (self._dims(sizes, rows, i, ranks) for i, n in enumerate(rows) if n >= ranks)
        return [Cut(found, found[self.of]) for found in dims if found]

    def _dims(
        self, sizes: Sizes, rows: tuple[int, ...], dim: int, ranks: int
    ) -> dict[str, int] | None:
        dims = {self.of: dim}
        for name in self.per_row:
            shape = sizes.get(name, ())
            if math.prod(shape) == 1:
                continue
            if shape[: len(rows)] == rows:
                dims[name] = dim
            elif dim == 0 and rows[0] % ranks == 0:  # it has all rows in one dimension
                dims[name] = 0
            else:
                return None
        return dims


@dataclass(frozen=True)
class Along:
    """Every rank has an equal shard of a dimension.

    what: the dimension, in words.
    dims: argument -> which of its dimensions that is, from its end where negative. The first tells
        how long it is, an integer argument in its dimension 0.
    result: which of the result's, in the same way.
    unit: how many elements of the first stay together.
    """

    what: str
    dims: Mapping[str, int]
    result: int
    unit: int = 1

    def cuts(self, sizes: Sizes, ranks: int) -> list[Cut]:
        """The cuts of a call of these sizes over so many ranks."""
        first = next(iter(self.dims))
        extent = sizes[first][self.dims[first]]
        if extent == 0 or extent % (self.unit * ranks):
            return []
        dims = {}
        for name, dim in self.dims.items():
            shape = sizes.get(name, ())
            if math.prod(shape) != 1:  # one scale for all of the dimension is whole on every rank
                dims[name] = dim % len(shape)
        return [Cut(dims, self.result)]


@dataclass(frozen=True)
class Inner:
    """Every rank has an equal shard of what is summed over, and a term of the result.

    what: the dimension, in words.
    dims: argument -> which of its dimensions that is, from its end where negative; the first tells
        how long it is.
    groups: an argument with an entry for each group of it in that dimension, which stay whole;
        there has to be more than one, since a scale that an op finds for all of it is no shard's.
    size: the integer argument that says how many elements a group has.
    without: arguments that each rank would add, or apply, to its term.
    unit: how many elements of the first stay together.
    """

    what: str
    dims: Mapping[str, int]
    groups: str | None = None
    size: str | None = None
    without: tuple[str, ...] = ("bias", "activation")
    unit: int = 1

    def cuts(self, sizes: Sizes, ranks: int) -> list[Cut]:
        """The cuts of a call of these sizes over so many ranks."""
        first = next(iter(self.dims))
        extents = [sizes[first][self.dims[first]]]
        if self.groups is not None:
            extents.append(sizes[self.groups][self.dims[self.groups]])
            if extents[1] < 2 or extents[0] % extents[1]:
                return []
            if self.size is not None and extents[0] != extents[1] * sizes[self.size][0]:
                return []
        if any(x == 0 or x % ranks for x in extents) or any(x in sizes for x in self.without):
            return []
        if extents[0] % (self.unit * ranks):
            return []
        given = {name: dim for name, dim in self.dims.items() if name in sizes}
        return [Cut({name: dim % len(sizes[name]) for name, dim in given.items()}, summed=True)]


@dataclass(frozen=True)
class InBlocks:
    """A way that is another one where a call says ``block_size``, the elements of its dimensions
    that share a scale: no block is cut in two.

    whole: without it. by_block: with it.
    place: of the dimension's in ``block_size``.
    """

    whole: Along | Inner
    by_block: Along | Inner
    place: int

    @property
    def what(self) -> str:
        """The dimension, in words."""
        return self.whole.what

    @property
    def dims(self) -> Mapping[str, int]:
        """The dimensions that either way cuts."""
        return {**self.by_block.dims, **self.whole.dims}

    def cuts(self, sizes: Sizes, ranks: int) -> list[Cut]:
        """The cuts of a call of these sizes over so many ranks."""
        if "block_size" not in sizes:
            return self.whole.cuts(sizes, ranks)
        first, dim = next(iter(self.by_block.dims.items()))
        if sizes[first][dim] % (sizes["block_size"][self.place] * ranks):
            return []
        return self.by_block.cuts(sizes, ranks)


def channel_blocks(dims: Mapping[str, int], result: int, unit: int = PAD_N) -> Along:
    """The output channels of a packed weight, whose layout keeps 64 together."""
    return Along("output channels, in blocks of 64", dims, result, unit)


@dataclass(frozen=True)
class Sharding:
    """All ways of an op.

    column_major: matrices that have to be column-major on every rank.
    """

    ways: tuple[Rows | Along | Inner | InBlocks, ...]
    column_major: tuple[str, ...] = ()

    def cuts(self, sizes: Sizes, ranks: int) -> list[Cut]:
        """The cuts of a call of these sizes over so many ranks, ``WHOLE`` first."""
        return [WHOLE, *(cut for way in self.ways for cut in way.cuts(sizes, ranks))]


def gathered(x: Tensor) -> Tensor:
    """Gather ``x`` on every rank where it is a DTensor, for operators that DTensor cannot cut."""
    redistribute = getattr(x, "redistribute", None)
    if redistribute is None:
        return x
    from torch.distributed.tensor import Replicate

    whole: Tensor = redistribute(placements=[Replicate()] * x.device_mesh.ndim)  # type: ignore[attr-defined]
    return whole
