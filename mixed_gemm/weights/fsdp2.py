"""FSDP2 (``fully_shard``) on a quantized weight: the tensors that it sends, and the whole weight
from those that it received.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..ops.errors import ArgumentValueError

if TYPE_CHECKING:
    from .tensor import QuantizedTensor


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
    """Return (the tensors that each rank gives, what stays with it).

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
    shards = []
    for i in range(mesh.size()):
        parts = dict(local.tensors())
        for name, tensor in zip(names, outputs, strict=True):
            rows = next(part.rows for part in local.parts if part.name == name) or 0
            size = tensor.shape[0] // mesh.size()
            parts[name] = tensor[i * size : (i + 1) * size].transpose(0, rows)
        shards.append(type(local)(parts, local.scheme, shape, local.dtype))
    whole = type(local).join(shards)
    if out is None:
        return whole, outputs
    for name, tensor in whole.tensors().items():
        target = getattr(out, name)
        with _same_version(target):
            target.copy_(tensor)
    return None


def _same_version(target: Tensor) -> AbstractContextManager[None]:
    """Have autograd take a tensor that is filled again for the one that the forward pass had, as
    FSDP2 does with those that it fills itself."""
    if target.is_inference():  # which has no version
        return nullcontext()
    return torch.autograd.grad_mode._unsafe_preserve_version_counter(target)
