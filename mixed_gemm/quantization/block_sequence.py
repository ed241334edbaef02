"""A model as units that are calibrated one after another: blocks, and layers in no block, in the
order in which they first run.

How the inputs of a unit are found is what proof.py decides, on the data at hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .values import Apart, fresh, refilled

REST = "the rest of the model"
GIVEN = "given"  # begins the path to a tensor in what a call is given


class Way(Enum):
    """How a unit is calibrated."""

    CHAINED = "replayed from what the units before it return"
    CAPTURED = "replayed from what the model's own forward gives it"
    WHOLE = "looked at while the model's own forward runs"


class Place(NamedTuple):
    """Where a tensor was returned: the call's number in its batch, and the path in the result; or
    :data:`GIVEN` and the path in what the model's own forward gave the call."""

    call: int
    path: tuple[Any, ...]


class Link:
    """Stands in the arguments of a call for a tensor that another call returns, which has this
    shape and dtype in the dense model."""

    __slots__ = ("dtype", "place", "shape")

    def __init__(self, place: Place, shape: torch.Size, dtype: torch.dtype) -> None:
        self.place, self.shape, self.dtype = place, shape, dtype

    def fits(self, x: Tensor | None) -> bool:
        """Whether it may stand for a tensor."""
        return x is not None and x.shape == self.shape and x.dtype == self.dtype


@dataclass
class Given:
    """The arguments of one call of a unit. The containers are its own, tensors may be shared."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def run(self, block: Any) -> Any:
        """Run the block with copies of the arguments, since it may write to them."""
        args, kwargs = fresh((self.args, self.kwargs))
        return block(*args, **kwargs)


@dataclass
class BlockCall:
    """One call of a block.

    Attributes:
        batch: its number. number: of the call among those of all blocks in that batch.
        template: (args, kwargs) with a :class:`Link` for each tensor that another call returns;
            None where the model's own forward gives them.
        runs: name of a layer -> how often the call ran it in the dense model.
    """

    batch: int
    number: int
    template: Any = None
    runs: dict[str, int] = field(default_factory=dict)

    def links(self) -> dict[Place, Link]:
        """The tensors that other calls return and this one takes."""
        rest = [] if self.template is None else Apart(self.template).rest
        return {x.place: x for _, x in rest if isinstance(x, Link)}

    def given(self, carried: Mapping[tuple[int, Place], Tensor]) -> Given:
        """Return the template with the tensors that other calls returned.

        Args:
            carried: (batch, where it was returned) -> tensor.
        """
        links = self.links().values()
        instead = {id(x): carried[self.batch, x.place] for x in links}
        return Given(*refilled(self.template, instead))


@dataclass
class Unit:
    """A block, or layers in no block that run one after another.

    Attributes:
        name: of the block. block: the module; None for layers in no block.
        layers: names of those to quantize. calls: in the order of batches.
        way: how it is calibrated. reason: why not in a faster way; empty where there is none.
    """

    name: str
    block: nn.Module | None
    layers: list[str]
    calls: list[BlockCall] = field(default_factory=list)
    way: Way = Way.CHAINED
    reason: str = ""


def find_blocks(model: nn.Module, targets: Iterable[str]) -> dict[str, nn.Module]:
    """Find the blocks: members of lists of modules that hold layers to quantize, of lists within
    each other the outermost whose members have a forward. A block that hangs at several places has
    the first name.

    Args:
        model: any. targets: names of layers below it.
    """
    found: dict[str, nn.Module] = {}
    for target in targets:
        module: Any = model
        parts = target.split(".")
        for i, part in enumerate(parts[:-1]):
            parent, module = module, module.get_submodule(part)
            if isinstance(parent, nn.ModuleList) and _has_forward(module):
                found.setdefault(".".join(parts[: i + 1]), module)
                break
    names: dict[int, str] = {}
    for name, block in found.items():
        names.setdefault(id(block), name)
    return {name: found[name] for name in names.values()}


def _has_forward(module: nn.Module) -> bool:
    return not isinstance(module, (nn.ModuleList, nn.ModuleDict))


def block_of(name: str, blocks: Iterable[str]) -> str | None:
    """Return the name of the block that holds a layer; None where none does."""
    return next((block for block in blocks if name.startswith(f"{block}.")), None)
