"""The product of several linear layers that read one tensor, whose results wait for their layers.

The first of the layers that is called computes the product and keeps the results of the others,
which return them when they are called with that very tensor. A layer returns what was kept only
where that is what its own product would be:

- the tensor is the same object, and torch has counted no write to it since then, which is what
  autograd goes by when it says that a saved tensor was modified. Tensors of
  torch.inference_mode have no such count, so products run apart there;
- the dtype of autocast and the stream of CUDA are the same, and no transform of torch.func is
  active;
- its weight and its bias are the ones that were joined. What replaces one of them, for good or for
  a call, ends that for the layer (``joint``); what writes into one writes into the whole.

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
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling, is_exporting

from ..ops.autograd import transforms_active
from ..weights.joining import shared_parts
from ..weights.tensor import QuantizedTensor

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


class OneProduct:
    """The product of all layers.

    Args:
        plain: plain parts of the weight of all, ``[T, K]``. places: (first row, rows) of each.
        bias: of all, ``[T]``; None where no layer has one. biases: of each, its slice of ``bias``
            or None.
    """

    def __init__(
        self,
        plain: Any,
        places: Sequence[tuple[int, int]],
        bias: Tensor | None,
        biases: Sequence[Any],
    ) -> None:
        self.plain, self.places, self.bias, self.biases = plain, places, bias, biases
        ends = [*(start for start, _ in places[1:]), sum(places[-1])]
        pads = [end - sum(place) for place, end in zip(places, ends, strict=True)]
        rows = [count for _, count in places]
        both = [x for pair in zip(rows, pads, strict=True) for x in pair]
        # How the product is split, and the step from the result of a layer to the next.
        self._sizes, self._step = (both, 2) if any(pads) else (rows, 1)
        self.pending: _Pending | None = None
        self.traced: Any = None

    def address(self, place: int) -> int:
        """Where in memory the bias of a layer lies that is a slice of the whole."""
        assert self.bias is not None
        return self.bias.data_ptr() + self.places[place][0] * self.bias.element_size()

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

    def whole(self, pieces: Sequence[Piece], x: Tensor) -> Tensor | None:
        """The results of all layers, side by side in one tensor; None where ``pieces`` are not all
        of them in their order, or rows that are padding lie between two.

        Args:
            pieces: of layers. x: ``[..., K]``, where no gradient is recorded.
        """
        if self._step != 1 or len(pieces) != len(self.places):
            return None
        for place, piece in enumerate(pieces):
            if piece.product is not self or piece.place != place:
                return None
        out: Tensor
        if is_dynamo_compiling():
            out = self.plain.product(x, self._traced_bias())
            return out
        if not all(piece.is_current() for piece in pieces):
            return None
        out = self.plain.product(x, self.bias)
        return out

    def _bias_state(self, place: int) -> tuple[int, int] | None:
        """Return what :meth:`Piece.bias_state` has to be for a result of now."""
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
                lambda: (
                    "mixed_gemm: a tensor is written to between two layers that read it as one "
                    "product. Hint: mixed_gemm.unfuse_(model) before torch.compile"
                ),
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
    """The place of one layer in a :class:`OneProduct`.

    Args:
        product, place: which. weight, bias: of the layer, slices of those of the whole.
    """

    def __init__(
        self, product: OneProduct, place: int, weight: QuantizedTensor, bias: Tensor | None
    ) -> None:
        self.product, self.place, self.bias = product, place, bias
        self.plain = weight.plain()
        self._watched = [(x, x._version) for x in shared_parts(weight).values()]

    def of(self, x: Tensor) -> Tensor | None:
        """The product of the layer with ``x`` ``[..., K]``; None where it is to compute its own."""
        if torch.is_grad_enabled():
            return None
        if is_dynamo_compiling():
            return self.product.traced_result(self, x)
        return self.product.result(self, x)

    def is_current(self) -> bool:
        """Whether nobody wrote to what the layer has beside rows, or moved its bias."""
        for x, version in self._watched:  # any() takes 0.15 us longer
            if x._version != version:
                return False
        return self.bias is None or self.bias.data_ptr() == self.product.address(self.place)

    def bias_state(self) -> tuple[int, int] | None:
        """Where the bias lies, and how often it was written to."""
        return None if self.bias is None else (self.bias.data_ptr(), self.bias._version)


def _autocast(x: Tensor) -> torch.dtype | None:
    """The dtype of autocast; None where it is off."""
    kind = "cpu" if x.is_cpu else x.device.type  # the device itself takes 0.3 us
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


def _state(x: Tensor) -> tuple[Any, ...]:
    """Return what two calls must share for the results of one to be those of the other."""
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
