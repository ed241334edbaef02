"""Quantized embeddings of a class that a model brings along, such as Gemma's, which multiplies rows
by the root of their width.

The forward of that class runs as it stands. Where it calls that of ``nn.Embedding``, or looks up
rows of its weight, these are rows of a quantized weight.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, ClassVar

from torch import Tensor, nn

from .followed import FOLLOWING, FollowsWeight

_NOT_TAKEN = frozenset({*FOLLOWING, "weight", "forward", "training"})
_BUFFERS = ("_buffers", "_non_persistent_buffers_set")


def own_class(embedding: nn.Embedding) -> type[nn.Embedding]:
    """Return the class whose forward an embedding runs: one of its model, or ``nn.Embedding``.

    Args:
        embedding: dense, or quantized.
    """
    kinds = type(embedding).__mro__
    return next(
        x for x in kinds if issubclass(x, nn.Embedding) and not issubclass(x, FollowsWeight)
    )


def take_attributes(made: nn.Module, like: nn.Module) -> None:
    """Give a module the public attributes and the buffers of another one, whose children and
    parameters stay with it. Private ones are marks that others hung on it.

    Args:
        made: that has what ``nn.Module()`` has. like: of a class that is an embedding.
    """
    for name, value in like.__dict__.items():
        if not name.startswith("_") and name not in _NOT_TAKEN:
            made.__dict__[name] = value
    for name in _BUFFERS:
        made.__dict__[name] = like.__dict__[name].copy()


class RunsOwnForward(FollowsWeight):
    """A base of the classes that :func:`kind_for` makes.

    Attributes:
        own: the class of the model. base: the quantized class under it.
    """

    own: ClassVar[type[nn.Embedding]]
    base: ClassVar[type[nn.Module]]

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Name the two classes, since pickle finds none that was made on the way.

        Args:
            protocol: of pickle.
        """
        found: Any = super().__reduce_ex__(protocol)
        return bare, (self.own, self.base), *found[2:]

    def to_float(self) -> nn.Embedding:
        """A dense module of the model's class, with the dequantized rows."""
        like: Any = self
        return dense_like(like, like.weight.dequantize())


@functools.cache
def kind_for(own: Any, base: Any) -> Any:
    """Return the class of quantized embeddings that run the forward of another class.

    Args:
        own: the class of the model. base: the quantized class.
    """
    said = {"own": own, "base": base, "__doc__": own.__doc__, "__module__": own.__module__}
    return type(f"Quantized{own.__name__}", (own, RunsOwnForward, base), said)


def bare(own: Any, base: Any) -> Any:
    """Return a module of :func:`kind_for` that has nothing yet.

    Args:
        own, base: as there.
    """
    kind = kind_for(own, base)
    return kind.__new__(kind)


def empty_like(embedding: nn.Embedding, base: Any) -> Any:
    """Return a quantized module with the attributes and buffers of an embedding, without a weight.

    Args:
        embedding: dense or quantized, of a class of its model. base: the quantized class.
    """
    own: Any = own_class(embedding)
    made = bare(own, base)
    nn.Module.__init__(made)
    take_attributes(made, embedding)
    return made.train(embedding.training)


def dense_like(embedding: nn.Embedding, weight: Tensor) -> nn.Embedding:
    """Return a dense module of the model's class that does not train.

    Args:
        embedding: dense or quantized: has its attributes and buffers. weight: ``[V, D]``.
    """
    own = own_class(embedding)
    made = own.__new__(own)
    nn.Module.__init__(made)
    take_attributes(made, embedding)
    made.num_embeddings, made.embedding_dim = weight.shape
    made.weight = nn.Parameter(weight, requires_grad=False)
    return made.train(embedding.training)


def held_beside_rows(embedding: nn.Embedding) -> Iterator[str]:
    """Yield the names of what an embedding holds beside its rows that a quantized one has no place
    for: other parameters, children, and buffers of files.

    Args:
        embedding: dense.
    """
    parameters = embedding._parameters.items()
    yield from (name for name, x in parameters if name != "weight" and x is not None)
    yield from embedding._modules
    yield from embedding._buffers.keys() - embedding._non_persistent_buffers_set
