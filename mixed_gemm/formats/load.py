"""A layer of a checkpoint, read into the weight that products run on.

Every codec can ``decode`` a layer into plain codes, which are then packed. Where an op repacks the
words of the format themselves, its codec does that instead: no code is unpacked to a byte on the
way, which takes twice the memory of a 4-bit layer and more, and most of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..nn.embedding import Embedding, rows_kind
from ..nn.linear import Linear
from ..weights.exchange import QuantizedWeight
from ..weights.exchange_rules import rounded_scheme
from ..weights.integer import IntegerWeight
from ..weights.kinds import kind_of, storing
from ..weights.rounding import too_small
from ..weights.rows import ROWS
from ..weights.scheme import FLOAT8, Scheme
from ..weights.tensor import QuantizedTensor
from .decode import signed_zeros
from .layer import LayerInfo, LayerTensors

if TYPE_CHECKING:
    from .codec import Codec


@dataclass(frozen=True)
class Wanted:
    """How a layer is to be loaded.

    Attributes:
        dtype: of the activations; that of scales when None.
        weight_only, float8: as of ``from_pretrained``.
        multiplied: whether an output head has the weight of this embedding, too, so that it is
            packed for products.
    """

    dtype: torch.dtype | None = None
    weight_only: bool = False
    float8: str = "keep"
    multiplied: bool = False

    def rounds(self, scheme: Scheme) -> bool:
        """Whether a weight that a file stores by ``scheme`` is rounded to integers."""
        return scheme.weight_type == FLOAT8 and self.float8 == "int8"

    def grouped_as(self, info: LayerInfo) -> Scheme:
        """The scheme whose groups, or blocks, the weight of a layer has once all of it is loaded:
        that of the file, or that of the integers to which it is rounded."""
        return rounded_scheme(info.in_features) if self.rounds(info.scheme) else info.scheme


@dataclass(frozen=True)
class Loaded:
    """A layer as the module needs it.

    Attributes:
        weight: ``[N, K]``. bias: ``[N]`` in the dtype of the weight, or None.
        module: what it is of, "linear", "conv1d" or "embedding".
    """

    weight: QuantizedTensor
    bias: Tensor | None
    module: str = "linear"

    def to_module(self) -> Linear | Embedding:
        """The module that holds it."""
        if self.module == "embedding":
            return Embedding.of_rows(self.weight)
        made = Linear.from_weight(self.weight, self.bias)
        made.is_conv1d = self.module == "conv1d"
        return made


def stored(weight: QuantizedWeight, wanted: Wanted) -> Loaded:
    """Pack the codes of a layer.

    Raises:
        ValueError: no kind of weight stores it.
    """
    if wanted.rounds(weight.scheme):
        weight = weight.requantize()
    dtype = weight.scales.dtype if wanted.dtype is None else wanted.dtype
    if weight.is_embedding:
        weight = weight.weight_only() if wanted.weight_only else weight
        are_rows = weight.scheme == ROWS and not wanted.multiplied
        where = f"mixed_gemm.Embedding: {weight.name}"
        rows, _ = rows_kind(where, None if are_rows else weight.scheme, weight.shape)
        return Loaded(rows.store(weight, dtype), None, weight.module)
    if wanted.weight_only or storing(weight.scheme, 2) is None:
        weight = weight.weight_only()
    kind = kind_of(f"mixed_gemm.Linear: {weight.name}", weight.scheme, weight.shape)
    bias = None if weight.bias is None else weight.bias.to(dtype)
    return Loaded(kind.store(weight, dtype), bias, weight.module)


# Role -> (the dimension of its tensor along the output channels, along K).
Axes = Mapping[str, tuple[int | None, int | None]]


class Decoded:
    """The base of codecs: a layer is decoded and packed, a shard of it cut from the whole."""

    axes: Axes | None = None

    def module_of(self, name: str) -> str:
        """The kind of a layer; "linear" in the files of others."""
        return "linear"

    def dtype_of(self, layer: LayerTensors) -> torch.dtype | None:
        """The dtype that a file wants a weight dequantized to; None where it says none."""
        return None

    def load(self: Any, layer: LayerTensors, info: LayerInfo, wanted: Wanted) -> Loaded:
        """Read a layer into the weight that products run on.

        Args:
            layer: its tensors, on the device where the weight is to be. info: from ``describe``.
            wanted: dtype and options.

        Raises:
            ValueError: its tensors hold what they must not, or no kind of weight stores it.
        """
        codec: Codec = self
        return stored(codec.decode(layer, info), wanted)


def repacked(
    layer: LayerTensors,
    info: LayerInfo,
    wanted: Wanted,
    repack: Callable[[], Tensor],
    zero_codes: Tensor | None,
    permutation: Tensor | None = None,
) -> Loaded | None:
    """A layer of integers whose words an op repacks; equal to what :func:`stored` makes of it, to
    the bit.

    Args:
        layer, info, wanted: as of ``Codec.load``.
        repack: gives the packed weight.
        zero_codes: integers ``[G, N]``, 0..2^bits, or None.
        permutation: int64 ``[K]`` or None, which ``repack`` has applied.

    Returns:
        None where codes or scales have to be looked at one by one: a scale is too small for the
        dtype, or not finite in it.
    """
    scales = layer.load_floats("scales")
    dtype = scales.dtype if wanted.dtype is None else wanted.dtype
    zeros = None if zero_codes is None else signed_zeros(zero_codes, info.stored_bits, scales.dtype)
    if zeros is not None and not bool(zeros.any()):
        zeros = None
    scheme = Scheme.of_file(
        info.scheme.weight_type, info.group_size, "none" if zeros is None else "sub"
    )
    kind = kind_of(f"mixed_gemm.Linear: {layer.name}", scheme, info.shape)
    cast = scales.to(dtype)
    if kind is not IntegerWeight or too_small(scales, dtype) is not None:
        return None
    if not bool(cast.isfinite().all()):
        return None
    bias = layer.bias(info.out_features)
    parts = {
        "b_packed": repack(),
        "scales": cast.contiguous(),
        "zeros": None if zeros is None else zeros.to(dtype).contiguous(),
        "permutation": permutation,
    }
    weight = kind(parts, scheme, info.shape, dtype)
    return Loaded(weight, None if bias is None else bias.to(dtype))
