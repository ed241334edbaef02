"""Loading a quantized checkpoint straight to a model that is sharded over ranks."""

from __future__ import annotations

import fnmatch
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)
from torch.distributed.tensor.placement_types import Placement

from ..formats.checkpoint import Checkpoint, open_checkpoint
from ..formats.errors import CheckpointError, CheckpointWarning
from ..formats.experts import is_expert, refusal
from ..ops.errors import ArgumentValueError
from .layers import read_linear, shard_on
from .read import COLUMNS, ROWS

Model = TypeVar("Model", bound=nn.Module)


def load_parallel(
    model: Model,
    path: str | Path,
    mesh: Any,
    plan: Mapping[str, ParallelStyle],
    dtype: torch.dtype | None = None,
) -> Model:
    """Fill a model from a quantized checkpoint and shard it: ``parallelize_module`` of a model
    that no rank ever has whole. Each rank reads its shard of the linear layers that the plan names,
    and all of the rest. Every rank has to call it.

    Args:
        model: with linear layers of the names and shapes of the checkpoint, best on meta; changed
            in place.
        path: a folder, or one file, of any format that ``open_checkpoint`` reads. Of safetensors in
            the layout of AutoAWQ "gemm", GPTQ and compressed-tensors no more than the shard is
            read (in act-order not along K); other layouts are read whole and cut.
        mesh: one-dimensional. plan: as of ``parallelize_module``, names with ``*``.
        dtype: of the activations and of what is not quantized; as the files have it when None.

    Returns:
        The model.

    Raises:
        CheckpointError: the files are broken. ValueError: a tensor of the files has no place in the
            model, or one of the model is not in the files.

    Warns of what the files ask for beyond their weights, and is not done here.
    """
    checkpoint, device = open_checkpoint(path), torch.device(mesh.device_type)
    for note in checkpoint.notes:
        warnings.warn(f"{path}: {note}", CheckpointWarning, stacklevel=2)
    for name in checkpoint.layers:
        dim = _dim(name, plan)
        made: nn.Module
        if dim is None:
            made = checkpoint.layer(name).to_module(dtype).to(device)
        else:
            made = read_linear(checkpoint.index, checkpoint.codec, name, mesh, dim, dtype=dtype)
        _place(model, checkpoint, name, made.train(model.training))
    for name in checkpoint.tensors:
        _take(model, checkpoint, name, mesh, plan, dtype)
    missing = [name for name, x in model.named_parameters() if x.is_meta]
    if missing:
        raise ArgumentValueError(
            f"load_parallel: {path} has no {', '.join(missing[:5])} ({len(missing)} in all)"
        )
    parallelize_module(model, mesh, dict(plan))
    return model


def _place(model: nn.Module, checkpoint: Checkpoint, name: str, made: nn.Module) -> None:
    try:
        model.get_submodule(name)
    except AttributeError as error:
        if is_expert(name):
            raise CheckpointError(
                checkpoint.path, name, refusal("no module of this name")
            ) from error
        raise ArgumentValueError(
            f"load_parallel: {checkpoint.path} has a quantized {name}, which the model has not"
        ) from error
    model.set_submodule(name, made)


def _dim(module: str, plan: Mapping[str, ParallelStyle]) -> int | None:
    """Which dimension of a linear's weight is shared out; None where it is whole on all ranks."""
    for pattern, style in plan.items():
        if fnmatch.fnmatchcase(module, pattern):
            if isinstance(style, ColwiseParallel):
                return ROWS
            return COLUMNS if isinstance(style, RowwiseParallel) else None
    return None


def _take(
    model: nn.Module, checkpoint: Checkpoint, name: str, mesh: Any,
    plan: Mapping[str, ParallelStyle], dtype: torch.dtype | None,
) -> None:  # fmt: skip
    owner, _, attribute = name.rpartition(".")
    try:
        module = model.get_submodule(owner)
        old: Any = getattr(module, attribute)
    except AttributeError as error:
        raise ArgumentValueError(
            f"load_parallel: {checkpoint.path} has {name}, which the model has not"
        ) from error
    dim = _dim(owner, plan) if isinstance(module, nn.Linear) else None
    index, shape = checkpoint.index, checkpoint.tensor_shape(name)
    if tuple(old.shape) != shape:
        raise ArgumentValueError(
            f"load_parallel: {name} is {shape} in {checkpoint.path}, the model has "
            f"{tuple(old.shape)}"
        )
    cut = dim is not None and (attribute == "weight" or dim == ROWS)
    placement: Placement = Replicate()
    if cut and dim is not None:
        shard, placement = shard_on(mesh, dim, shape[dim]), Shard(dim)
        tensor = index.load_slice(name, dim, shard.start, shard.stop)
    else:
        tensor = index.load(name)
    tensor = tensor.to(torch.device(mesh.device_type))
    if dtype is not None and tensor.is_floating_point():
        tensor = tensor.to(dtype)
    value: Tensor = tensor
    if dim is not None:
        value = DTensor.from_local(
            tensor, mesh, [placement], run_check=False, shape=torch.Size(shape),
            stride=torch.empty(shape, device="meta").stride(),
        )  # fmt: skip
    if attribute in module._buffers:
        module._buffers[attribute] = value
    else:
        trains = bool(old.requires_grad) and value.is_floating_point()
        module.register_parameter(attribute, nn.Parameter(value, requires_grad=trains))
