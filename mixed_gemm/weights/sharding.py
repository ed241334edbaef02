"""Quantized weights over several processes: what FSDP2 gathers, what torch's tensor parallelism
scatters, and a sharded weight in a state_dict.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from ..ops.errors import ArgumentValueError
from .dense import on_dense
from .dispatch import rule
from .tensor import QuantizedTensor
from .views import has_views, tell_views

_c10d = torch.ops.c10d
_aten = torch.ops.aten


def _rows_in_front(weight: QuantizedTensor) -> dict[str, Tensor]:
    """The parts that run along the output channels, with those in dimension 0."""
    found = {}
    for part in weight.parts:
        tensor = getattr(weight, part.name)
        if tensor is not None and part.rows is not None:
            found[part.name] = tensor.transpose(0, part.rows).contiguous()
    return found


def gather_from(
    weight: QuantizedTensor, mesh: Any, whole: torch.Size
) -> tuple[tuple[Tensor, ...], Any]:
    """(what each rank gives, what stays with it).

    Raises:
        ValueError: the ranks have different numbers of rows.
    """
    if whole[0] % mesh.size():
        raise ArgumentValueError(
            f"QuantizedTensor: fully_shard over {mesh.size()} ranks needs a number of output "
            f"channels that they divide, got {whole[0]}. Hint: fully_shard(..., "
            "ignored_params={module.weight}) keeps it whole on every rank"
        )
    return tuple(_rows_in_front(weight).values()), (mesh, tuple(weight.shape))


def gathered(
    local: QuantizedTensor, outputs: tuple[Tensor, ...], metadata: Any, out: Any
) -> tuple[QuantizedTensor, tuple[Tensor, ...]] | None:
    """The whole weight. Where ``out`` is given it is filled instead: FSDP2 gathers into the same
    buffers again, and only what was copied out of them is stale."""
    mesh, shape = metadata
    names = list(_rows_in_front(local))
    pieces = []
    for i in range(mesh.size()):
        parts = dict(local.tensors())
        for name, tensor in zip(names, outputs, strict=True):
            rows = next(part.rows for part in local.parts if part.name == name) or 0
            size = tensor.shape[0] // mesh.size()
            parts[name] = tensor[i * size : (i + 1) * size].transpose(0, rows)
        pieces.append(type(local)(parts, local.scheme, shape, local.dtype))
    whole = type(local).join(pieces)
    if out is None:
        return whole, outputs
    for name, tensor in whole.tensors().items():
        getattr(out, name).copy_(tensor)
    return None


def _sent(part: Tensor) -> Tensor:
    """A part as a backend takes it: gloo knows no float8, and says so after the call only."""
    return part.view(torch.uint8) if part.dtype == torch.float8_e4m3fn else part


def _parts_of(tensors: list[QuantizedTensor]) -> list[str]:
    return list(tensors[0].tensors())


def _await(work: Any) -> None:
    """What a part is sent by, before the next one is: whoever asked for all of it waits for the
    last only, and gloo's threads finish in any order."""
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
    if x.scheme.weights.block is not None:  # pieces of other sizes have other blocks
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
