"""A shard of a quantized layer: some output channels, or some columns of K, read without the rest.

Its tensors are shown to the codec as if the file held a smaller layer, so that a format needs to
say no more than which dimension of a tensor is which (``axes``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..formats.bitfields import words_dense
from ..formats.codec import Codec
from ..formats.index import TensorIndex
from ..formats.layer import LayerInfo, LayerTensors
from ..formats.load import Wanted
from ..ops.problem import ceil_div, round_up
from ..weights.tensor import QuantizedTensor

ROWS, COLUMNS = 0, 1
_SHAPE = "weight_shape"  # compressed-tensors has it: its two values are (N, K)
_ORDERS = ("g_idx", "weight_g_idx", "mixed_gemm_permutation")
_PACKED = ("qweight", "qzeros", "weight_packed", "weight_zero_point")


@dataclass(frozen=True)
class ShardOf:
    """Rows (dim 0) or columns (dim 1) ``start`` to ``stop`` of a weight ``[N, K]``."""

    dim: int
    start: int
    stop: int


@dataclass(frozen=True)
class _Ratio:
    """So many entries of a tensor for so many output channels, or columns."""

    elements: int
    entries: int


def _ratio(role: str, extent: int, whole: int, stored_bits: int, group: int) -> _Ratio | None:
    """How a tensor's ``extent`` follows the ``whole`` dimension; None where it is not known."""
    if extent == whole:
        return _Ratio(1, 1)
    if role in _PACKED and 32 % stored_bits == 0 and extent == words_dense(whole, stored_bits):
        # 3 bits are left out: they have two layouts, and a shard might be taken for the other.
        return _Ratio(32 // stored_bits, 1)
    if group > 0 and extent == ceil_div(whole, group):
        return _Ratio(group, 1)
    return None


class _ShardOfTensors:
    """The tensors of one layer as if it had only the rows or columns of ``shard``."""

    def __init__(
        self,
        index: TensorIndex,
        name: str,
        ratios: Mapping[str, tuple[int, _Ratio]],
        shard: ShardOf,
        shape: tuple[int, int],
    ) -> None:
        self._index, self._name, self._ratios, self._shard = index, name, ratios, shard
        self._values = list(shape)  # the shape of the shard
        self._values[shard.dim] = shard.stop - shard.start

    def _range(self, name: str) -> tuple[int, int, int] | None:
        """(dimension, first entry, last entry) of what a tensor is cut to."""
        found = self._ratios.get(name.removeprefix(f"{self._name}."))
        if found is None:
            return None
        (dim, ratio), extent = found, self._index.shape(name)
        start = self._shard.start // ratio.elements * ratio.entries
        stop = ceil_div(self._shard.stop, ratio.elements) * ratio.entries
        return dim, start, min(stop, extent[dim])

    def __contains__(self, name: object) -> bool:
        return name in self._index

    def file(self, name: str) -> Path:
        return self._index.file(name)

    def shape(self, name: str) -> tuple[int, ...]:
        shape = list(self._index.shape(name))
        if (cut := self._range(name)) is not None:
            shape[cut[0]] = cut[2] - cut[1]
        return tuple(shape)

    def dtype(self, name: str) -> torch.dtype | str:
        return self._index.dtype(name)

    def load(self, name: str) -> Tensor:
        if name == f"{self._name}.{_SHAPE}":
            return torch.tensor(self._values)
        cut = self._range(name)
        return self._index.load(name) if cut is None else self._index.load_slice(name, *cut)


def _ratios(
    codec: Codec, layer: LayerTensors, info: LayerInfo, dim: int
) -> dict[str, tuple[int, _Ratio]] | None:
    """Role -> (its dimension that follows ``dim``, how); None where the layer is read whole."""
    axes = codec.axes
    if axes is None or (dim == COLUMNS and any(layer.has(role) for role in _ORDERS)):
        return None
    whole = (info.out_features, info.in_features)[dim]
    block = info.block or (0, info.group_size)
    found = {}
    for role in filter(layer.has, codec.roles):
        shape, axis = layer.shape(role), axes.get(role, (None, None))[dim]
        if axis is None or axis >= len(shape) or (shape[axis] == 1 and whole != 1):
            continue
        ratio = _ratio(role, shape[axis], whole, info.stored_bits, block[dim])
        if ratio is None:
            return None
        found[role] = (axis, ratio)
    return found


def read_shard(
    index: TensorIndex, codec: Codec, name: str, shard: ShardOf, dtype: torch.dtype | None = None,
    weight_only: bool = False, float8: str = "keep",
) -> tuple[QuantizedTensor, Tensor | None]:  # fmt: skip
    """(the rows or columns of a layer, its bias), on the CPU.

    Of a safetensors file in the layout of AutoAWQ "gemm", GPTQ or compressed-tensors no more is
    read than whole words and groups that the shard touches. Columns of layers in act-order, whose
    order is that of all of them, codes of 3 bits and other layouts are read whole.

    Args:
        index, codec: of the checkpoint. name: of the layer.
        shard: which rows or columns; the bias of rows is that of those, of columns all of it.
        dtype: of the activations; that of scales when None.
        weight_only, float8: as of ``from_pretrained``.

    Raises:
        CheckpointError: as of ``Checkpoint.layer``. ValueError: a group would be cut so that no
            multiple of 16 is left.
    """
    layer, wanted = LayerTensors(index, name), Wanted(dtype, weight_only, float8)
    info = codec.describe(layer)
    ratios = _ratios(codec, layer, info, shard.dim)
    whole = (info.out_features, info.in_features)
    if ratios is None:
        start, stop = 0, whole[shard.dim]
        source, described = layer, info
    else:
        unit = math.lcm(*(ratio.elements for _, ratio in ratios.values()))
        if shard.dim == COLUMNS and wanted.rounds(info.scheme):
            # The columns that get a scale together are those that get one in the whole weight.
            size = wanted.grouped_as(info).group_size
            unit = math.lcm(unit, whole[COLUMNS] if size == -1 else size)
        start = shard.start // unit * unit
        stop = min(round_up(shard.stop, unit), whole[shard.dim])
        shown: Any = _ShardOfTensors(index, name, ratios, ShardOf(shard.dim, start, stop), whole)
        source = LayerTensors(shown, name, info.group_size if info.group_size > 0 else None)
        described = codec.describe(source)
    try:
        loaded = codec.load(source, described, wanted)
        made, bias = loaded.weight, loaded.bias
        if (start, stop) != (shard.start, shard.stop):
            made = made.cut(shard.dim, shard.start - start, shard.stop - start)
    except ValueError as error:
        raise layer.error(codec.anchor, str(error)) from error
    if bias is not None and shard.dim == ROWS:
        bias = bias[shard.start - start : shard.stop - start].clone()
    return made, bias
