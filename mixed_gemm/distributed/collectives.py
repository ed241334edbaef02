"""The collective operators on quantized weights, by which torch's tensor parallelism scatters them:
part by part. FSDP2 gathers plain tensors, see ``fsdp2``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from ..ops.errors import ArgumentValueError
from ..weights.dense import on_dense
from ..weights.dependents import has_views, tell_views
from ..weights.rules import rule
from ..weights.tensor import QuantizedTensor

_c10d = torch.ops.c10d
_aten = torch.ops.aten


def _sent(part: Tensor) -> Tensor:
    """A part as a backend takes it: gloo knows no float8, and says so after the call only."""
    return part.view(torch.uint8) if part.dtype == torch.float8_e4m3fn else part


def _parts_of(tensors: list[QuantizedTensor]) -> list[str]:
    return list(tensors[0].tensors())


def _await(work: Any) -> None:
    """Wait until a part is sent, before the next one is: whoever asked for all waits for the last
    only, and gloo's threads finish in any order."""
    found = None if work is None else torch.distributed.Work.unbox(work)
    if found is not None:  # NCCL has none for what is in the order of the stream already
        found.wait()


def _received(weight: QuantizedTensor, work: Any) -> None:
    """Have the views of a weight look at what it is when all of it has arrived."""
    if has_views(weight):
        _await(work)
        tell_views(weight)


@rule(_aten.constant_pad_nd.default)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Rows of zeros at the end, which scattering an odd number of rows asks for."""
    x, pad = args[0], list(args[1])
    if not isinstance(x, QuantizedTensor) or x.dim() != 2:
        return on_dense(func, args, kwargs)
    left, right, above, below = [*pad, 0, 0, 0, 0][:4]
    if left or right or above or below < 0:
        raise ArgumentValueError(
            f"QuantizedTensor: columns cannot be filled up with zeros, asked for {pad}; shares of "
            f"columns must have one size, and this weight has {x.shape[1]}. Hint: shard its rows "
            "(ColwiseParallel), or over a number of ranks that divides it"
        )
    if not below:
        return x.with_parts(torch.clone)
    if x.scheme.weights.block is not None:  # shards of other sizes have other blocks
        raise ArgumentValueError(
            f"QuantizedTensor: rows of {x.scheme} are shared out evenly only. Hint: shard over a "
            "number of ranks that divides the output channels"
        )
    zeros = _aten.new_zeros.default(x, [below, x.shape[1]])
    joined = type(x).join([x, zeros])
    return joined


@rule(_c10d.scatter_.default)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Part by part, in the order of the first."""
    outputs, inputs, *rest = args
    if not all(isinstance(x, QuantizedTensor) for x in tree_leaves((outputs, inputs))):
        return on_dense(func, args, kwargs)
    work = None
    for name in _parts_of(outputs):
        given = [[_sent(getattr(x, name).contiguous()) for x in chunk] for chunk in inputs]
        _await(work)
        _, work = func([_sent(getattr(outputs[0], name))], given, *rest, **kwargs)
    _received(outputs[0], work)
    return outputs, work


@rule(_c10d.broadcast_.default)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensors, *rest = args
    if not all(isinstance(x, QuantizedTensor) for x in tensors):
        return on_dense(func, args, kwargs)
    work = None
    for name in _parts_of(tensors):
        _await(work)
        _, work = func([_sent(getattr(x, name)) for x in tensors], *rest, **kwargs)
    for x in tensors:
        _received(x, work)
    return tensors, work
