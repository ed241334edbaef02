"""Linear layers that read one tensor, and the one product of all of them.

The first of the layers that is called computes the product and keeps the results of the others,
which return them when they are called with that very tensor. Nothing else is changed: modules,
names and the code of the model stay. A layer returns what was kept only where that is what its own
product would be:

- the tensor is the same object, and torch has counted no write to it since then, which is what
  autograd goes by when it says that a saved tensor was modified. Tensors of
  torch.inference_mode have no such count, so products run apart there;
- the dtype of autocast and the stream of CUDA are the same, and no transform of torch.func is
  active;
- its weight and its bias are the ones that were joined. What replaces one of them, for good or for
  a call, ends that for the layer; what writes into one writes into the whole.

No gradient is recorded through the whole: with gradients, and in train mode, each layer computes
its own product, so that a backward pass, and a forward pass that gradient checkpointing repeats,
are to the bit those of layers that were never joined.

What was kept lives no longer than the tensor: results that nobody took (another way through the
model, an exception between two layers) are dropped with it, by a weak reference. Each is taken
once, by one thread, and shares no count of writes with the others, so that its reader may write to
it.

torch.compile has no count of writes, but its graphs have: ``torch._check`` puts the question into
the graph, functionalization answers it, and a write in between is an error when the graph is
compiled. What the layers share while they are traced is gone when the trace ends.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling, is_exporting

from ..ops.autograd import transforms_active
from ..weights.joining import joined, same_memory, shared_parts, why_apart
from ..weights.tensor import QuantizedTensor

if TYPE_CHECKING:
    from .joined import JoinedLayer

_INFERENCE = (
    "mixed_gemm: layers that are fused run apart under torch.inference_mode, where torch counts no "
    "writes to a tensor, so that nobody can tell whether two of them read the same. Hint: "
    "torch.no_grad, or torch.compile, which fuses in both"
)
_check: Any = torch._check


@dataclass
class _Pending:
    """Results that nobody has taken yet.

    Attributes:
        x: the input, weakly. state: what must be as it was. rest: place -> (result, bias it has).
    """

    x: weakref.ref[Tensor]
    state: tuple[Any, ...]
    rest: dict[int, tuple[Tensor, Any]]


class Joint:
    """The whole of several layers.

    Args:
        layers: whose weights :func:`mixed_gemm.weights.joining.why_apart` finds alike. Their
            weights and biases become slices of those of the whole, with the same values.
    """

    def __init__(self, layers: Sequence[JoinedLayer]) -> None:
        weights: list[QuantizedTensor] = [layer.weight for layer in layers]
        with torch.no_grad():
            made = joined(weights)
            self.places, self.parts = made.places, made.parts
            # Not the tensor, whose attributes nobody may read while torch.export traces.
            self.kind, self.plain = type(made.whole), made.whole.plain()
            self.shared = shared_parts(made.whole)
            self._join_biases(made.whole, [layer._parameters["bias"] for layer in layers])
            for weight, parts in zip(weights, made.parts, strict=True):
                for name, part in parts.items():
                    setattr(weight, name, part)
        self._begin()
        for place, layer in enumerate(layers):
            layer.joint, layer.place = self, place
            self.attach(layer)

    def _join_biases(self, weight: QuantizedTensor, biases: list[Any]) -> None:
        """Make of the biases slices of one. What has none adds -0.0, which changes no number."""
        self.biases, self.bias = biases, None
        if all(bias is None for bias in biases):
            return
        whole = torch.full((weight.shape[0],), -0.0, dtype=weight.dtype, device=weight.device)
        for (start, count), bias in zip(self.places, biases, strict=True):
            if bias is not None:
                bias.data = whole.narrow(0, start, count).copy_(bias.detach())
        self.bias = whole

    def _begin(self) -> None:
        ends = [*(start for start, _ in self.places[1:]), sum(self.places[-1])]
        pads = [end - sum(place) for place, end in zip(self.places, ends, strict=True)]
        rows = [count for _, count in self.places]
        both = [x for pair in zip(rows, pads, strict=True) for x in pair]
        # How the product is split, and the step from the result of a layer to the next.
        self._sizes, self._step = (both, 2) if any(pads) else (rows, 1)
        self.members: list[weakref.ref[JoinedLayer] | None] = [None] * len(self.places)
        self.pending: _Pending | None = None
        self.traced: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """Who belongs together: copies of the layers have tensors of their own, and are joined once
        all of them are there."""
        return {"places": self.places}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.plain = None
        self.places, self.parts = state["places"], ({},) * len(state["places"])
        self.biases = [None] * len(self.places)
        self._begin()

    # --- whose it is -----------------------------------------------------------------------------

    @property
    def layers(self) -> list[JoinedLayer] | None:
        """All of them; None where some are gone, or were not copied along."""
        found = [None if x is None else x() for x in self.members]
        there = [layer for layer in found if layer is not None]
        return there if len(there) == len(found) else None

    def attach(self, layer: JoinedLayer) -> None:
        """Know a layer, which knows its place."""
        known = self.members[layer.place]
        if known is None or known() is None:
            self.members[layer.place] = weakref.ref(layer)
        if self.plain is None:
            self.join_again()
        for each in self.layers or ():
            each.follow_weight()

    def piece(self, layer: JoinedLayer) -> Piece | None:
        """The place of a layer whose weight and bias, of now, are slices of those of the whole."""
        weight: Any = layer._parameters.get("weight")
        bias = layer._parameters.get("bias")
        self.pending = None  # something was replaced, or written
        if self.plain is None or type(weight) is not self.kind or self.layers is None:
            return None
        mine, whole, given = self.parts[layer.place], self.shared, weight.tensors()
        if given.keys() != mine.keys() | whole.keys() or weight.scheme != self.plain.scheme:
            return None
        if any(type(x) not in (Tensor, nn.Parameter) for x in given.values()):
            return None  # torch.export replaces them while it traces
        if not all(same_memory(given[name], part) for name, part in mine.items()):
            return None
        if not all(_same(given[name], part) for name, part in whole.items()):
            return None
        if bias is not self.biases[layer.place]:
            return None
        if bias is not None and bias.data_ptr() != self.address(layer.place):
            return None
        return Piece(self, layer.place, weight, bias)

    def address(self, place: int) -> int:
        """Where in memory the bias of a layer lies that is a slice of the whole."""
        assert self.bias is not None
        return self.bias.data_ptr() + self.places[place][0] * self.bias.element_size()

    def release(self, layer: JoinedLayer) -> None:
        """Give a layer storage of its own for what is a slice of the whole."""
        weight, bias = layer._parameters.get("weight"), layer._parameters.get("bias")
        found: dict[str, Tensor] = weight.tensors() if isinstance(weight, QuantizedTensor) else {}
        for name, part in self.parts[layer.place].items():
            if name in found and same_memory(found[name], part):
                own = part.clone(memory_format=torch.contiguous_format)
                setattr(weight, name, own)
        if bias is None or bias is not self.biases[layer.place]:
            return
        if bias.data_ptr() == self.address(layer.place):
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

    # --- products --------------------------------------------------------------------------------

    def result(self, mine: Piece, x: Tensor) -> Tensor | None:
        """The product of one layer; None where it is to compute its own.

        Args:
            mine: of the layer. x: ``[..., K]``, where no gradient is recorded.
        """
        pending = self.pending
        if pending is not None and pending.x() is x:
            kept, bias = pending.rest.pop(mine.place, (None, None))
            if not pending.rest:
                self.pending = None
            if kept is not None and bias == mine.bias_state() and pending.state == _state(x):
                return kept if mine.is_current() else None
        if mine.place != 0 or not mine.is_current() or not _is_counted(x):
            return None
        out, state = self.plain.product(x, self.bias), _state(x)
        # They are no views: torch counts writes to each by themselves.
        found = torch.unsafe_split_with_sizes(out, self._sizes, -1)[:: self._step]
        rest = {i: (found[i], self._bias_state(i)) for i in range(1, len(found))}
        self.pending = _Pending(weakref.ref(x, lambda _: rest.clear()), state, rest)
        return found[0]

    def _bias_state(self, place: int) -> tuple[int, int] | None:
        """What :meth:`Piece.bias_state` has to be for a result of now."""
        bias = self.biases[place]
        return None if bias is None else (self.address(place), bias._version)

    def traced_result(self, mine: Piece, x: Tensor) -> Tensor | None:
        """:meth:`result`, where torch.compile traces.

        Args:
            mine: of the layer. x: ``[..., K]``.
        """
        if is_exporting():
            return None
        kept, state = self.traced, _autocast(x)
        if kept is not None and kept[0] is x and mine.place in kept[4] and kept[3] == state:
            _check(
                x._version == kept[1],
                # A constant to torch.compile, as no global is.
                lambda: "mixed_gemm: a tensor is written to between two layers that read it as one "
                "product. Hint: mixed_gemm.unfuse_(model) before torch.compile",
            )
            rest = tuple(place for place in kept[4] if place != mine.place)
            self.traced = (*kept[:4], rest) if rest else None
            out = kept[2]
        elif mine.place == 0:
            out = self.plain.product(x, self._traced_bias())
            rest = tuple(range(1, len(self.places)))
            self.traced = (x, x._version, out, state, rest)
        else:
            return None
        found: Tensor = out.narrow(-1, *self.places[mine.place])
        return found

    def _traced_bias(self) -> Tensor | None:
        """The bias, put together of those of now: no guard of a graph sees where a tensor lies."""
        whole = self.bias
        if whole is None:
            return None
        parts, end = [], 0
        for (start, count), bias in zip(self.places, self.biases, strict=True):
            parts += [whole[end:start], whole[start : start + count] if bias is None else bias]
            end = start + count
        return torch.cat(parts)


class Piece:
    """The place of one layer in a :class:`Joint`.

    Args:
        joint, place: which. weight, bias: of the layer, slices of those of the whole.
    """

    def __init__(
        self, joint: Joint, place: int, weight: QuantizedTensor, bias: Tensor | None
    ) -> None:
        self.joint, self.place, self.bias = joint, place, bias
        self.plain = weight.plain()
        self._watched = [(x, x._version) for x in shared_parts(weight).values()]

    def of(self, x: Tensor) -> Tensor | None:
        """The product of the layer with ``x`` ``[..., K]``; None where it is to compute its own."""
        if torch.is_grad_enabled():
            return None
        if is_dynamo_compiling():
            return self.joint.traced_result(self, x)
        return self.joint.result(self, x)

    def is_current(self) -> bool:
        """Whether nobody wrote to what the layer has beside rows, or moved its bias."""
        if any(x._version != version for x, version in self._watched):
            return False
        return self.bias is None or self.bias.data_ptr() == self.joint.address(self.place)

    def bias_state(self) -> tuple[int, int] | None:
        """Where the bias lies, and how often it was written to."""
        return None if self.bias is None else (self.bias.data_ptr(), self.bias._version)


def _same(a: Tensor, b: Tensor) -> bool:
    return same_memory(a, b) or (
        (a.device, a.dtype, a.shape) == (b.device, b.dtype, b.shape) and torch.equal(a, b)
    )


def _autocast(x: Tensor) -> torch.dtype | None:
    """The dtype of autocast; None where it is off."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


def _state(x: Tensor) -> tuple[Any, ...]:
    """What two calls must have in common for the results of one to be those of the other."""
    stream = torch.cuda.current_stream(x.device).cuda_stream if x.is_cuda else 0
    return x._version, _autocast(x), stream


def _is_counted(x: Tensor) -> bool:
    """Whether torch counts what is written to ``x``, and it is no tensor of a transform."""
    if type(x) is not Tensor or x.is_meta or transforms_active():
        return False
    if x.is_inference():
        warnings.warn(_INFERENCE, stacklevel=2)
        return False
    return True
