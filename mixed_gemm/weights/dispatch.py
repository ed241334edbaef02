"""The rules of torch's operators for a ``QuantizedTensor``; everything else runs on the dense
value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import return_and_correct_aliasing

from ..ops.problem import DTYPES
from .dense import assign, on_dense
from .rules import rule
from .tensor import QuantizedTensor
from .views import Flat, Transposed, WeightView, WholeView, dense_of, piece_of
from .writing import is_traced, rounded_like

_aten = torch.ops.aten
_aliasing: Callable[..., Any] = return_and_correct_aliasing


def _dense(x: Any) -> Any:
    if isinstance(x, QuantizedTensor):
        return dense_of(x)
    return x.dense() if isinstance(x, WeightView) else x


# --- products ------------------------------------------------------------------------------------


def _linear(x: Any, weight: QuantizedTensor, bias: Tensor | None = None) -> Tensor:
    return weight.product(x, bias)


@rule(_aten.linear.default)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if isinstance(args[1], QuantizedTensor) and args[1].dim() == 2:
        return _linear(_dense(args[0]), *args[1:], **kwargs)
    return on_dense(func, args, kwargs)


@rule(_aten.mm.default, _aten.matmul.default)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, w = args
    if isinstance(w, Transposed) and not isinstance(x, QuantizedTensor | WeightView):
        return _linear(x, w.weight)
    return on_dense(func, args, kwargs)


@rule(_aten.addmm.default)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    bias, x, w = args
    fused = isinstance(w, Transposed) and isinstance(bias, Tensor) and bias.dim() == 1
    if fused and not kwargs and not isinstance(x, QuantizedTensor | WeightView):
        return _linear(x, w.weight, bias)
    return on_dense(func, args, kwargs)


# --- the same weight, seen or stored otherwise ---------------------------------------------------


@rule(_aten.t.default)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x = args[0]
    if not isinstance(x, QuantizedTensor | Transposed) or x.dim() != 2:
        return on_dense(func, args, kwargs)
    return _alias(x.weight) if isinstance(x, Transposed) else Transposed(x)


@rule(_aten.transpose.int)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, first, second = args
    if (
        isinstance(x, QuantizedTensor | Transposed)
        and x.dim() == 2
        and {first % 2, second % 2} == {0, 1}
    ):
        # Another tensor: in a backward pass torch makes what it gets a view of x.weight.
        return _alias(x.weight) if isinstance(x, Transposed) else Transposed(x)
    return on_dense(func, args, kwargs)


@rule(_aten.detach.default, _aten.alias.default)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x = args[0]
    if isinstance(x, WeightView):
        return _aliasing(func, args, kwargs, x.again())
    return _aliasing(func, args, kwargs, _alias(x))


def _alias(x: QuantizedTensor) -> QuantizedTensor:
    """Another tensor with the parts of a weight, which hears of writes as it does; compilers have
    to see that the parts are aliases, too."""
    made = x.with_parts(torch.detach if is_traced(x) else lambda part: part)
    made.piece_of = x.piece_of
    return made


@rule(_aten.view.default, _aten._unsafe_view.default, _aten.as_strided.default)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """To its own shape, and flat: DTensor and FSDP2 ask for that."""
    x, size = args[0], tuple(args[1])
    stride, offset = (*map(_tuple, args[2:]), None, None)[:2]
    if not isinstance(x, QuantizedTensor) or offset:
        return on_dense(func, args, kwargs)
    if size == tuple(x.shape) and stride in (None, x.stride()):
        return _aliasing(func, args, kwargs, _alias(x))
    if size in ((-1,), (x.numel(),)) and stride in (None, (1,)):
        return Flat(x)
    return on_dense(func, args, kwargs)


def _tuple(x: Any) -> Any:
    return tuple(x) if isinstance(x, list | tuple) else x


@rule(_aten.clone.default)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, form = args[0], kwargs.get("memory_format")
    if isinstance(x, QuantizedTensor):
        return x.with_parts(torch.clone)
    if isinstance(x, WholeView) and form in (None, torch.preserve_format):
        return type(x)(x.weight.with_parts(torch.clone))
    return on_dense(func, args, kwargs)


@rule(_aten._to_copy.default, _aten.empty_like.default)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, dtype = args[0], kwargs.get("dtype")
    if isinstance(x, WeightView) or dtype not in (None, *DTYPES):
        return on_dense(func, args, kwargs)
    if dtype is not None and func is _aten._to_copy.default:
        x = x.fitted(dtype)
    kept = {k: v for k, v in kwargs.items() if k not in ("dtype", "memory_format", "layout")}
    parts = {}
    for part in x.parts:
        if (tensor := getattr(x, part.name)) is not None:
            cast = {"dtype": dtype} if dtype is not None and part.follows else {}
            if cast and part.derived:
                continue  # worked out anew, for this dtype
            # An empty weight takes activations as this one does, wherever that is known.
            known = part.rows is None and not tensor.is_meta and func is _aten.empty_like.default
            operator = _aten._to_copy.default if known else func
            parts[part.name] = operator(tensor, **kept, **cast)
    return type(x)(parts, x.scheme, x.shape, dtype or x.dtype)


@rule(_aten.is_pinned.default, _aten._pin_memory.default)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x = args[0].weight if isinstance(args[0], WeightView) else args[0]
    if func is _aten.is_pinned.default:
        return all(func(tensor, *args[1:], **kwargs) for tensor in x.tensors().values())
    if x is not args[0]:
        return on_dense(func, args, kwargs)
    return x.with_parts(lambda tensor: func(tensor, *args[1:], **kwargs))


# --- slices --------------------------------------------------------------------------------------


@rule(_aten.split.Tensor)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, size, dim = (*args, 0)[:3]
    if isinstance(x, WeightView) or is_traced(x):
        return on_dense(func, args, kwargs)
    total, dim = x.shape[dim], dim % x.dim()
    edges = [(start, min(start + size, total)) for start in range(0, total, size)]
    return [piece_of(x, dim, *edge) for edge in edges]


@rule(_aten.slice.Tensor)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    defaults: tuple[Any, ...] = (0, None, None, 1)
    x, dim, start, stop, step = args + defaults[len(args) - 1 :]
    if isinstance(x, WeightView) or step != 1:
        return on_dense(func, args, kwargs)
    dim, total = dim % x.dim(), x.shape[dim]
    start, stop, _ = slice(start, stop).indices(total)
    if (start, stop) == (0, total):
        return _aliasing(func, args, kwargs, _alias(x))
    # Filters are not cut. What a graph returns is put together anew, and nobody would know of what
    # it is a slice.
    if dim == 0 and start < stop and x.dim() == 2 and not is_traced(x):
        return piece_of(x, dim, start, stop)
    return on_dense(func, args, kwargs)


@rule(_aten.new_zeros.default)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Another number of rows: FSDP2 makes place for a shard so."""
    x, size = args[0], tuple(args[1])
    other = any(value for value in kwargs.values())
    if isinstance(x, WeightView) or other or size[1:] != tuple(x.shape[1:]) or 0 in size:
        return on_dense(func, args, kwargs)
    scheme = x.scheme_of_rows(size[0])
    shapes = x.shapes(size, scheme)
    parts = {
        part.name: tensor if part.rows is None else tensor.new_zeros(shapes[part.name])
        for part in x.parts
        if (tensor := getattr(x, part.name)) is not None
    }
    return type(x)(parts, scheme, size, x.dtype)


# --- writing -------------------------------------------------------------------------------------


@rule(_aten.copy_.default)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Codes that fit are copied, without being rounded again."""
    target, source = args[0], args[1]
    if not isinstance(target, QuantizedTensor | WeightView):
        return func(target, _dense(source), *args[2:], **kwargs)
    if not isinstance(target, QuantizedTensor) or source.dtype not in DTYPES:
        return on_dense(func, args, kwargs)
    source = source.dense() if isinstance(source, WeightView) else source
    in_place = target.piece_of is None or (target.piece_of[1] == 0 and target.stored_alike(source))
    if not in_place:
        return on_dense(func, args, kwargs)
    if source.shape != target.shape:
        source = _dense(source).expand(target.shape)
    assign(target, target.converted(source))
    return target


@rule(_aten.resize_.default)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Its own shape changes nothing: ``convert_conv2d_weight_memory_format`` asks for that."""
    x = args[0]
    if isinstance(x, QuantizedTensor) and tuple(args[1]) == tuple(x.shape):
        return x
    return on_dense(func, args, kwargs)


@rule(_aten.add_.Tensor, _aten.sub_.Tensor, _aten.mul_.Tensor, _aten.div_.Tensor)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """In float32: the sum is rounded to the codes once, and not to 16 bits before."""
    target, other = args[0], args[1]
    if not isinstance(target, QuantizedTensor) or target.piece_of is not None:
        return on_dense(func, args, kwargs)
    other = _dense(other)
    if isinstance(other, Tensor):
        other = other.float()
    dense = func(target.dequantize(torch.float32), other, *args[2:], **kwargs)
    assign(target, rounded_like(target, dense))
    return target
