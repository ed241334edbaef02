"""Views of a quantized weight: tensors that have nothing of their own. What is written into one is
written into the weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .dependents import depends
from .tensor import Dispatched, QuantizedTensor


class WeightView(Dispatched):
    """A quantized weight, seen in another way."""

    weight: QuantizedTensor

    def replay(self, dense: Tensor) -> Tensor:
        """The same view of a dense tensor.

        Args:
            dense: contiguous, of the shape of the weight.
        """
        raise NotImplementedError

    def dense(self) -> Tensor:
        """The value, of the shape of this view."""
        return self.replay(dense_of(self.weight))

    def again(self) -> WeightView:
        """Another tensor that is the same view."""
        raise NotImplementedError

    def _stored(self) -> list[Tensor]:
        return self.weight._stored()

    def _value(self) -> Tensor:
        return self.dense().clone()

    def _assign(self, value: Tensor) -> None:
        self.copy_(value)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return self._value()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._value().__reduce_ex__(protocol)  # type: ignore[no-untyped-call]

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"{type(self).__name__}({tuple(self.shape)}, of {self.weight!r})"


class WholeView(WeightView):
    """A view that its class says all of."""

    @staticmethod
    def __new__(cls, weight: QuantizedTensor) -> WholeView:
        size, stride = cls.extents(weight)
        made: WholeView = cls._wrap(size, weight.dtype, weight.device, stride)
        return made

    def __init__(self, weight: QuantizedTensor) -> None:
        self.weight = weight

    @staticmethod
    def extents(weight: QuantizedTensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(shape, strides)."""
        raise NotImplementedError

    def again(self) -> WholeView:
        return type(self)(self.weight)

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["weight"], None

    @classmethod
    def __tensor_unflatten__(
        cls, tensors: dict[str, Any], context: None, outer_size: Any, outer_stride: Any
    ) -> WholeView:
        return cls(tensors["weight"])


class Transposed(WholeView):
    """``w.t()`` of ``[N, K]``, as ``torch.mm`` and ``addmm`` take it."""

    @staticmethod
    def extents(weight: QuantizedTensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
        n, k = weight.shape
        return (k, n), (1, k)

    def replay(self, dense: Tensor) -> Tensor:
        return dense.t()


class Flat(WholeView):
    """``w.view(-1)``, which FSDP2 keeps of every parameter and does not look into."""

    @staticmethod
    def extents(weight: QuantizedTensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return (weight.numel(),), (1,)

    def replay(self, dense: Tensor) -> Tensor:
        return dense.view(-1)


@dataclass(frozen=True)
class Step:
    """One operator of torch that returns a view.

    Attributes:
        func: the operator. args, kwargs: of it, with None in the place of what is viewed.
        place: where that stands in ``args``.
        index: of the result, where there are several; -1 where there is one.
    """

    func: Any
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    place: int
    index: int = -1

    def __call__(self, x: Tensor) -> Tensor:
        args = (*self.args[: self.place], x, *self.args[self.place + 1 :])
        out = self.func(*args, **dict(self.kwargs))
        found: Tensor = out if self.index < 0 else out[self.index]
        return found


class Seen(WeightView):
    """A view that operators of torch make of a weight: a row, some columns, another shape. Its
    value is kept, until the weight is written.

    Args:
        weight: of any shape. steps: the operators. value: what they make of the dense value.
    """

    @staticmethod
    def __new__(cls, weight: QuantizedTensor, steps: tuple[Step, ...], value: Tensor) -> Seen:
        made: Seen = cls._wrap(
            value.shape, value.dtype, value.device, value.stride(), value.storage_offset()
        )
        return made

    def __init__(self, weight: QuantizedTensor, steps: tuple[Step, ...], value: Tensor) -> None:
        self.weight, self.steps = weight, steps
        self._keep(value)
        depends(self, weight)

    def _keep(self, value: Tensor) -> None:
        self._kept: Tensor | None = value
        self._versions = _versions(self.weight)

    def replay(self, dense: Tensor) -> Tensor:
        for step in self.steps:
            dense = step(dense)
        return dense

    def dense(self) -> Tensor:
        if self._kept is None or self._versions is None or self._versions != _versions(self.weight):
            self._keep(super().dense())
        assert self._kept is not None
        return self._kept

    def again(self) -> Seen:
        return type(self)(self.weight, self.steps, self.dense())

    def weight_written(self) -> None:
        """Forget the value."""
        self._kept = None

    def __tensor_flatten__(self) -> tuple[list[str], tuple[Step, ...]]:
        return ["weight"], self.steps

    @classmethod
    def __tensor_unflatten__(
        cls,
        tensors: dict[str, Any],
        context: tuple[Step, ...],
        outer_size: Any,
        outer_stride: Any,
    ) -> Seen:
        value = dense_of(tensors["weight"])
        for step in context:
            value = step(value)
        return cls(tensors["weight"], context, value)


def dense_of(weight: QuantizedTensor) -> Tensor:
    """The dense value, with the strides that torch takes the weight to have.

    Args:
        weight: of any shape.
    """
    return weight.dequantize().contiguous()


def _versions(weight: QuantizedTensor) -> tuple[int, ...] | None:
    """How often the parts were written by themselves; None where torch does not count."""
    parts = weight._stored()
    if any(type(x) is not Tensor or x.is_inference() for x in parts):
        return None
    return tuple(x._version for x in parts)


def piece_of(weight: QuantizedTensor, dim: int, start: int, stop: int) -> QuantizedTensor:
    """Some rows or columns that stay quantized. They are stored apart, and written together with
    the weight.

    Args:
        weight: of any shape. dim: 0 for rows, 1 for columns. start, stop: of them.

    Raises:
        ValueError: a group of columns that share a scale would be cut in two.
        NotImplementedError: this kind of weight is not cut.
    """
    found = weight.cut(dim, start, stop)
    found.piece_of = (weight, dim, start)
    depends(found, weight)
    return found
