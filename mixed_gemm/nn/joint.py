"""Linear layers that read one tensor, and whose weights and biases are slices of one.

Modules, names and the code of the model stay; ``one_product`` says when a layer returns its part of
the product of all. Here is which layers belong together, and which of them still have the weight
and the bias that were joined: that is looked at whenever one is replaced. Copies, conversions and
files that are loaded give the layers tensors of their own, which are joined again once all of them
are there.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..weights.joining import Joined, joined, same_memory, shared_parts, why_apart
from ..weights.tensor import QuantizedTensor
from .one_product import OneProduct, Piece

if TYPE_CHECKING:
    from .joined import JoinedLayer


class Joint:
    """The whole of several layers.

    Args:
        layers: whose weights :func:`mixed_gemm.weights.joining.why_apart` finds alike. Their
            weights and biases become slices of those of the whole, with the same values.

    Attributes:
        product: of all; None in a copy until its layers are joined.
    """

    product: OneProduct | None = None

    def __init__(self, layers: Sequence[JoinedLayer]) -> None:
        with torch.no_grad():
            made = joined([layer.weight for layer in layers])
            self.count, self.parts = len(layers), made.parts
            self.kind, self.shared = type(made.whole), shared_parts(made.whole)
            biases = [layer._parameters["bias"] for layer in layers]
            bias = _joined_biases(made, biases)
            # Not the tensor, whose attributes nobody may read while torch.export traces.
            self.product = OneProduct(made.whole.plain(), made.places, bias, biases)
            for layer, parts in zip(layers, made.parts, strict=True):
                for name, part in parts.items():
                    setattr(layer.weight, name, part)
        self._nobody()
        for place, layer in enumerate(layers):
            layer.joint, layer.place = self, place
            self.attach(layer)

    def _nobody(self) -> None:
        self._members: list[weakref.ref[JoinedLayer] | None] = [None] * self.count

    def __getstate__(self) -> dict[str, Any]:
        """How many belong together: copies of the layers have tensors of their own."""
        return {"count": self.count}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.count = state["count"]
        self._nobody()

    @property
    def layers(self) -> list[JoinedLayer] | None:
        """All of them; None where some are gone, or were not copied along."""
        found = [None if x is None else x() for x in self._members]
        there = [layer for layer in found if layer is not None]
        return there if len(there) == len(found) else None

    def attach(self, layer: JoinedLayer) -> None:
        """Know a layer, which knows its place."""
        known = self._members[layer.place]
        if known is None or known() is None:
            self._members[layer.place] = weakref.ref(layer)
        if self.product is None:
            self.join_again()
        for each in self.layers or ():
            each.follow_weight()

    def piece(self, layer: JoinedLayer) -> Piece | None:
        """The place of a layer whose weight and bias, of now, are slices of those of the whole."""
        product = self.product
        if product is None:
            return None
        product.pending = None  # something was replaced, or written
        weight: Any = layer._parameters.get("weight")
        if type(weight) is not self.kind or self.layers is None:
            return None
        mine, whole, given = self.parts[layer.place], self.shared, weight.tensors()
        if given.keys() != mine.keys() | whole.keys() or weight.scheme != product.plain.scheme:
            return None
        if any(type(x) not in (Tensor, nn.Parameter) for x in given.values()):
            return None  # torch.export replaces them while it traces
        if not all(same_memory(given[name], part) for name, part in mine.items()):
            return None
        if not all(_same(given[name], part) for name, part in whole.items()):
            return None
        if not self._has_bias(product, layer):
            return None
        return Piece(product, layer.place, weight, layer._parameters.get("bias"))

    @staticmethod
    def _has_bias(product: OneProduct, layer: JoinedLayer) -> bool:
        """Whether the bias of a layer is its slice of that of the whole."""
        bias = layer._parameters.get("bias")
        if bias is not product.biases[layer.place]:
            return False
        return bias is None or bias.data_ptr() == product.address(layer.place)

    def release(self, layer: JoinedLayer) -> None:
        """Give a layer storage of its own for what is a slice of the whole."""
        if self.product is None:
            return
        weight, bias = layer._parameters.get("weight"), layer._parameters.get("bias")
        found: dict[str, Tensor] = weight.tensors() if isinstance(weight, QuantizedTensor) else {}
        for name, part in self.parts[layer.place].items():
            if name in found and same_memory(found[name], part):
                own = part.clone(memory_format=torch.contiguous_format)
                setattr(weight, name, own)
        if bias is not None and self._has_bias(self.product, layer):
            bias.data = bias.detach().clone()

    def join_again(self) -> None:
        """Join the layers anew once each of them has other tensors, as after ``model.to(...)``."""
        layers = self.layers
        if layers is None or any(x.piece is not None or x.joint is not self for x in layers):
            return
        if any(x.why_not_joined() for x in layers):
            return
        if not any(why_apart(layers[0].weight, x.weight) for x in layers[1:]):
            Joint(layers)


def _joined_biases(made: Joined, biases: Sequence[Any]) -> Tensor | None:
    """Make of the biases slices of one, and return it. What has none adds -0.0, which changes no
    number."""
    if all(bias is None for bias in biases):
        return None
    weight = made.whole
    whole = torch.full((weight.shape[0],), -0.0, dtype=weight.dtype, device=weight.device)
    for (start, count), bias in zip(made.places, biases, strict=True):
        if bias is not None:
            bias.data = whole.narrow(0, start, count).copy_(bias.detach())
    return whole


def _same(a: Tensor, b: Tensor) -> bool:
    return same_memory(a, b) or (
        (a.device, a.dtype, a.shape) == (b.device, b.dtype, b.shape) and torch.equal(a, b)
    )
