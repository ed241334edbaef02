"""Replacing a layer by a module that holds its quantized weight."""

from __future__ import annotations

import time

import torch
from torch import nn

from ..nn.linear import Linear
from ..ops.errors import ArgumentValueError
from ..weights.modules import module_of
from ..weights.rows import RowsWeight
from ..weights.tensor import QuantizedTensor
from .methods.base import CompleteMethod
from .report import LayerReport
from .select import Target


def replace_layer(name: str, target: Target, method: CompleteMethod) -> LayerReport:
    """Put a quantized module in every place of a layer.

    Args:
        name: of the layer. target: the layer, its scheme and its places.
        method: rounds the weight; rows of an embedding are rounded by themselves.

    Raises:
        ValueError: the weight holds NaN or Inf.
    """
    begun, layer = time.perf_counter(), target.layer
    try:
        rows = isinstance(layer, nn.Embedding)
        weight = RowsWeight.from_float(layer.weight) if rows else method.weight(name, target)
    except ValueError as error:
        raise ArgumentValueError(f"quantize_: {name}: {error}") from error
    new = module_of(weight).around(weight, layer)
    if isinstance(new, Linear):
        new.is_conv1d = target.module is not layer
    for parent, child_name in target.places:
        setattr(parent, child_name, new)
        _leave_fast_path(parent)
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


@torch.no_grad()
def _error(dense: torch.Tensor, weight: QuantizedTensor, note: str) -> float | None:
    """Return the relative error of the weight; None where it was changed by more than rounding
    (factors were folded)."""
    if dense.is_meta or note.startswith("folded"):
        return None
    exact = dense.float()
    return float((weight.dequantize(torch.float32) - exact).norm() / exact.norm().clamp(min=1e-30))


def _leave_fast_path(parent: nn.Module) -> None:
    """Leave the inference path of nn.TransformerEncoderLayer, which reads linear1.weight itself;
    nn.TransformerEncoder looks at this flag of it as well."""
    if isinstance(parent, nn.TransformerEncoderLayer):
        parent.activation_relu_or_gelu = 0
