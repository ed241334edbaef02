"""The record of one op: all that is particular to it, beside its public function in the file of its
family. The answers to torch's questions are written once for all ops, in a file for each question,
and ``registry`` hands the records to those files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .autocast import AllBut
from .autograd import Derivatives
from .contract import Made
from .flops import Flops
from .reasons import INTEGERS, NO_FLOATS, NO_PRODUCT, ON_GPU
from .sharding import Along, Sharding
from .vmap import Batching


@dataclass(frozen=True)
class Op:
    """One op. A text in place of a rule is the reason why there is none.

    name: as in its contract, which has its arguments, refusals and results (``contract``). With an
        underscore in front it is for tests and benchmarks.
    doc: what it computes, in a line.
    derivatives: what trains, how, and why the rest does not.
    autocast: whether its floating-point tensors are cast to the dtype of torch.autocast, and which
        of them stay.
    vmap: which arguments may have a batch, and what becomes of it.
    flops: the operations of its product.
    sharding: how a call on DTensors is cut over the ranks.
    opcheck: whether torch.library.opcheck passes.
    fake: whether it has a fake kernel, which its contract makes; a function that takes every
        argument by name where the contract has no sizes of the result.
    """

    name: str
    doc: str
    derivatives: Derivatives
    autocast: Literal[True] | AllBut | str
    vmap: Batching | str
    flops: Flops | str
    sharding: Sharding | str
    opcheck: Literal[True] | str = True
    fake: Literal[True] | Made | str = True

    @property
    def is_public(self) -> bool:
        return not self.name.startswith("_")


def of_integers(
    name: str, doc: str, looped: tuple[str, ...], channels: Along, made: Made | None = None
) -> Op:
    """An op that moves integers from one layout to another.

    Args:
        looped: arguments that vmap takes apart. channels: how output channels are cut.
        made: ``Op.fake``.
    """
    return Op(
        name,
        doc,
        derivatives=Derivatives(INTEGERS),
        autocast=NO_FLOATS,
        vmap=Batching(looped=looped),
        flops=NO_PRODUCT,
        sharding=Sharding((channels,)),
        fake=made or True,
    )


def for_tests(name: str, doc: str, why_frozen: str) -> Op:
    """An op on CUDA tensors that tests and benchmarks call, and nothing traces."""
    return Op(name, doc, Derivatives(why_frozen), *[ON_GPU] * 6)
