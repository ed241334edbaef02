"""What torch's operators do with a ``QuantizedTensor``: a rule for each, everything else runs on
the dense value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_map

from ..ops.problem import DTYPES
from .tensor import Dispatched, QuantizedTensor
from .writing import rounded_like

_aten = torch.ops.aten
_aliasing: Callable[..., Any] = return_and_correct_aliasing
_Rule = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
_RULES: dict[Any, _Rule] = {}


class WeightView(Dispatched):
    """A quantized weight, seen in another shape; of its own it has nothing."""

    weight: QuantizedTensor

    @staticmethod
    def __new__(cls, weight: QuantizedTensor) -> WeightView:
        size, stride = cls.extents(weight)
        made: WeightView = cls._wrap(size, weight.dtype, weight.device, stride)
        return made

    def __init__(self, weight: QuantizedTensor) -> None:
        self.weight = weight

    @staticmethod
    def extents(weight: QuantizedTensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(shape, strides)."""
        raise NotImplementedError

    def dense(self) -> Tensor:
        raise NotImplementedError

    def _stored(self) -> list[Tensor]:
        return self.weight._stored()

    def _value(self) -> Tensor:
        return self.dense()

    def _assign(self, value: Tensor) -> None:
        self.copy_(value)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"{type(self).__name__}({self.weight!r})"

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["weight"], None

    @classmethod
    def __tensor_unflatten__(
        cls, tensors: dict[str, Any], context: None, outer_size: Any, outer_stride: Any
    ) -> WeightView:
        return cls(tensors["weight"])


class Transposed(WeightView):
    """``w.t()`` of ``[N, K]``, as ``torch.mm`` and ``addmm`` take it."""

    @staticmethod
    def extents(weight: QuantizedTensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
        n, k = weight.shape
        return (k, n), (1, k)

    def dense(self) -> Tensor:
        return self.weight.dequantize().t()


class Flat(WeightView):
    """``w.view(-1)``, which FSDP2 keeps of every parameter and does not look into."""

    @staticmethod
    def extents(weight: QuantizedTensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return (weight.numel(),), (1,)

    def dense(self) -> Tensor:
        return self.weight.dequantize().reshape(-1)


def dispatch(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The answer to one operator.

    Raises:
        NotImplementedError: it would write into a quantized weight what cannot be stored there.
    """
    rule = _RULES.get(func)
    if rule is not None:
        return rule(func, args, kwargs)
    return _on_dense(func, args, kwargs)


def rule(*ops: Any) -> Callable[[_Rule], _Rule]:
    """Register how ``ops`` treat a quantized weight."""

    def register(function: _Rule) -> _Rule:
        _RULES.update(dict.fromkeys(ops, function))
        return function

    return register


def _dense(x: Any) -> Any:
    if isinstance(x, QuantizedTensor):
        return x.dequantize().contiguous()  # as torch takes the weight to be
    return x.dense() if isinstance(x, WeightView) else x


def _on_dense(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    for argument, value in zip(func._schema.arguments, args, strict=False):
        written = argument.alias_info is not None and argument.alias_info.is_write
        if written and isinstance(value, QuantizedTensor | WeightView):
            raise NotImplementedError(
                f"{func}: a quantized weight cannot be written so, since its numbers are shared "
                "scales and 4- or 8-bit codes. Hint: weight.data = dense rounds a dense tensor to "
                "its scheme; copy_, add_, sub_, mul_ and div_ do as well"
            )
    return func(*tree_map(_dense, args), **tree_map(_dense, kwargs))


# --- products ------------------------------------------------------------------------------------


def _linear(x: Any, weight: QuantizedTensor, bias: Tensor | None = None) -> Tensor:
    return weight.product(x, bias)


@rule(_aten.linear.default)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if isinstance(args[1], QuantizedTensor) and args[1].dim() == 2:
        return _linear(_dense(args[0]), *args[1:], **kwargs)
    return _on_dense(func, args, kwargs)


@rule(_aten.mm.default, _aten.matmul.default)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, w = args
    if isinstance(w, Transposed) and not isinstance(x, QuantizedTensor | WeightView):
        return _linear(x, w.weight)
    return _on_dense(func, args, kwargs)


@rule(_aten.addmm.default)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    bias, x, w = args
    fused = isinstance(w, Transposed) and isinstance(bias, Tensor) and bias.dim() == 1
    if fused and not kwargs and not isinstance(x, QuantizedTensor | WeightView):
        return _linear(x, w.weight, bias)
    return _on_dense(func, args, kwargs)


# --- the same weight, seen or stored otherwise ---------------------------------------------------


@rule(_aten.t.default)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x = args[0]
    if isinstance(x, Flat):
        return _on_dense(func, args, kwargs)
    return x.weight if isinstance(x, Transposed) else Transposed(x)


@rule(_aten.transpose.int)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, first, second = args
    if x.dim() == 2 and {first % 2, second % 2} == {0, 1}:
        return x.weight if isinstance(x, Transposed) else Transposed(x)
    return _on_dense(func, args, kwargs)


@rule(_aten.detach.default, _aten.alias.default)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x = args[0]
    same = type(x)(x.weight) if isinstance(x, WeightView) else x.with_parts(func)
    return _aliasing(func, args, kwargs, same)


@rule(_aten.view.default, _aten._unsafe_view.default, _aten.as_strided.default)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """To its own shape, and flat: DTensor and FSDP2 ask for that."""
    x, size = args[0], tuple(args[1])
    if isinstance(x, QuantizedTensor) and size == tuple(x.shape):
        return _aliasing(func, args, kwargs, x.with_parts(torch.detach))
    if isinstance(x, QuantizedTensor) and size in ((-1,), (x.numel(),)):
        return Flat(x)
    return _on_dense(func, args, kwargs)


@rule(_aten.clone.default)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x = args[0]
    if isinstance(x, WeightView):
        return type(x)(x.weight.with_parts(torch.clone))
    return x.with_parts(torch.clone)


@rule(_aten._to_copy.default, _aten.empty_like.default)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, dtype = args[0], kwargs.get("dtype")
    if isinstance(x, WeightView) or dtype not in (None, *DTYPES):
        return _on_dense(func, args, kwargs)
    if dtype is not None and func is _aten._to_copy.default:
        x = x.fitted(dtype)
    kept = {k: v for k, v in kwargs.items() if k not in ("dtype", "memory_format", "layout")}
    parts = {}
    for part in x.parts:
        if (tensor := getattr(x, part.name)) is not None:
            cast = {"dtype": dtype} if dtype is not None and part.follows else {}
            parts[part.name] = func(tensor, **kept, **cast)
    return type(x)(parts, x.scheme, x.shape, dtype or x.dtype)


@rule(_aten.is_pinned.default, _aten._pin_memory.default)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x = args[0].weight if isinstance(args[0], WeightView) else args[0]
    if func is _aten.is_pinned.default:
        return all(func(tensor, *args[1:], **kwargs) for tensor in x.tensors().values())
    return x.with_parts(lambda tensor: func(tensor, *args[1:], **kwargs))


# --- slices --------------------------------------------------------------------------------------


@rule(_aten.split.Tensor)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, size, dim = (*args, 0)[:3]
    if isinstance(x, WeightView):
        return _on_dense(func, args, kwargs)
    total, dim = x.shape[dim], dim % x.dim()
    return [x.cut(dim, start, min(start + size, total)) for start in range(0, total, size)]


@rule(_aten.slice.Tensor)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    defaults: tuple[Any, ...] = (0, None, None, 1)
    x, dim, start, stop, step = args + defaults[len(args) - 1 :]
    if isinstance(x, WeightView) or step != 1:
        return _on_dense(func, args, kwargs)
    dim, total = dim % x.dim(), x.shape[dim]
    start, stop, _ = slice(start, stop).indices(total)
    if (start, stop) == (0, total):
        return _aliasing(func, args, kwargs, x.with_parts(torch.detach))
    if dim == 0 and start < stop:
        piece = x.cut(dim, start, stop)
        piece.rows_of = (x, start)
        return piece
    return _on_dense(func, args, kwargs)


@rule(_aten.new_zeros.default)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Another number of rows: FSDP2 makes place for a shard so."""
    x, size = args[0], tuple(args[1])
    other = any(value for value in kwargs.values())
    if isinstance(x, WeightView) or other or size[1:] != tuple(x.shape[1:]) or 0 in size:
        return _on_dense(func, args, kwargs)
    scheme = x.scheme_of_rows(size[0])
    shapes = x.shapes(size, scheme)
    parts = {
        part.name: tensor if part.rows is None else tensor.new_zeros(shapes[part.name])
        for part in x.parts
        if (tensor := getattr(x, part.name)) is not None
    }
    return type(x)(parts, scheme, size, x.dtype)


# --- writing -------------------------------------------------------------------------------------


def _write(target: QuantizedTensor, new: QuantizedTensor) -> QuantizedTensor:
    """The parts of ``new`` into those of ``target``, and through it into what it is a slice of."""
    for name, tensor in new.tensors().items():
        getattr(target, name).copy_(tensor)
    target.written()
    if target.rows_of is not None:
        whole, start = target.rows_of
        stop, total = start + target.shape[0], whole.shape[0]
        pieces = [whole.cut(0, a, b) for a, b in ((0, start), (stop, total)) if a < b]
        pieces.insert(1 if start else 0, new)
        # Where rows share scales the pieces have others than the whole, which rounds them again.
        _write(whole, whole.converted(type(whole).join(pieces)))
    return target


@rule(_aten.copy_.default)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    target, source = args[0], args[1]
    source = source.dense() if isinstance(source, WeightView) else source
    if not isinstance(target, QuantizedTensor):
        if isinstance(target, WeightView):
            return _on_dense(func, args, kwargs)
        return func(target, _dense(source), *args[2:], **kwargs)
    if source.shape != target.shape:
        source = _dense(source).expand(target.shape)
    return _write(target, target.converted(source))


@rule(_aten.add_.Tensor, _aten.sub_.Tensor, _aten.mul_.Tensor, _aten.div_.Tensor)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    target, other = args[0], _dense(args[1])
    if isinstance(target, WeightView):
        return _on_dense(func, args, kwargs)
    if not isinstance(target, QuantizedTensor):
        return func(target, other, *args[2:], **kwargs)
    if isinstance(other, Tensor):
        other = other.float()
    # In float32: the sum is rounded to the codes once, and not to 16 bits before.
    dense = func(target.dequantize(torch.float32), other, *args[2:], **kwargs)
    return _write(target, rounded_like(target, dense))
