"""Replacing a layer by a module that holds its quantized weight."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn

from ..nn.embedding import Embedding
from ..nn.linear import Linear
from ..ops.errors import ArgumentValueError
from ..weights.modules import module_of
from ..weights.row_blocks import row_blocks
from ..weights.tensor import QuantizedTensor
from .methods.base import CompleteMethod
from .report import LayerReport
from .select import Target


def replace_layer(
    name: str, target: Target, method: CompleteMethod, embedding: Target | None = None
) -> LayerReport:
    """Put a quantized module in every place of a layer.

    Args:
        name: of the layer. target: the layer, its scheme and its places.
        method: rounds the weight; rows of an embedding are rounded by themselves.
        embedding: of an output head that is tied to one, that one, which was replaced already.

    Raises:
        ValueError: the weight holds NaN or Inf.
    """
    if embedding is not None:
        return _share(name, target, embedding)
    begun, layer = time.perf_counter(), target.layer
    new: Any
    try:
        if isinstance(layer, nn.Embedding):
            new = Embedding.from_float(layer, target.scheme if target.packs_rows else None)
            weight = new.weight
        else:
            weight = method.weight(name, target)
            new = module_of(weight).around(weight, layer)
    except ValueError as error:
        raise ArgumentValueError(f"quantize_: {name}: {error}") from error
    if isinstance(new, Linear):
        new.is_conv1d = target.module is not layer
    _put(new, target)
    return LayerReport(
        name,
        weight.scheme,
        bytes_before=layer.weight.nbytes,
        bytes_after=weight.stored_bytes,
        weight_error=_error(layer.weight, weight, method.note(name)),
        output_error=method.output_error(name),
        seconds=time.perf_counter() - begun,
        note=method.note(name),
    )


def _put(new: nn.Module, target: Target) -> None:
    for parent, child_name in target.places:
        setattr(parent, child_name, new)
        _leave_fast_path(parent)


def _share(name: str, target: Target, embedding: Target) -> LayerReport:
    """Let an output head multiply by the parameter of its embedding."""
    parent, child_name = embedding.places[0]
    shared: Any = getattr(parent, child_name).weight
    new = Linear.around(shared, target.layer)
    new.weight = shared  # the very parameter, as whoever ties weights looks for
    _put(new, target)
    return LayerReport(name, shared.scheme, note=f"shares the weight of {target.tied}")


@torch.no_grad()
def _error(dense: torch.Tensor, weight: QuantizedTensor, note: str) -> float | None:
    """Return the relative error of the weight; None where it was changed by more than rounding
    (factors were folded)."""
    if dense.is_meta or note.startswith("folded"):
        return None
    rounded = weight.dequantize(torch.float32)
    errors, sizes = [], []
    for rows in row_blocks(dense):
        exact = dense[rows].float()
        errors.append((rounded[rows] - exact).norm())
        sizes.append(exact.norm())
    return float(torch.stack(errors).norm() / torch.stack(sizes).norm().clamp(min=1e-30))


def _leave_fast_path(parent: nn.Module) -> None:
    """Leave the inference path of nn.TransformerEncoderLayer, which reads linear1.weight itself;
    nn.TransformerEncoder looks at this flag of it as well."""
    if isinstance(parent, nn.TransformerEncoderLayer):
        parent.activation_relu_or_gelu = 0
