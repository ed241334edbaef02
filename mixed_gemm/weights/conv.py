"""Filters of convolutions in 4- and 8-bit integers, with scales per block of input channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..ops.conv_layout import dense_filter, pack_filter
from ..ops.conv_problem import check_block_size, conv_packed_shape, num_blocks
from ..ops.errors import check_storage
from ..ops.problem import LAYOUT_VERSION, check_bits
from .rounding_conv import quantize_conv_weight
from .scheme import Scheme
from .tensor import Part
from .values import weight_tag
from .weight_only import WeightOnlyTensor
from .writing import spliced


class ConvWeight(WeightOnlyTensor):
    """A filter ``[Co, Ci, Kh, Kw]``, w = q * scale (+ offset); group_size of the scheme counts
    input channels, which share a scale with all taps.

    Parts:
        weight_packed: uint8, from ``pack_conv_weights``.
        scales: ``[ceil(Ci / group_size), Co]``. offsets: the same or None.
    """

    module: ClassVar[str] = "conv2d"
    kind: ClassVar[str] = "conv"
    dims: ClassVar[int] = 4
    parts: ClassVar[tuple[Part, ...]] = (
        Part("weight_packed", (torch.uint8,), follows=False, finite=False, rows=0),
        Part("scales", rows=1),
        Part("offsets", rows=1),
    )

    weight_packed: Tensor
    scales: Tensor
    offsets: Tensor | None

    @staticmethod
    def check_group(where: str, group_size: int, channels: int) -> None:
        check_block_size(where, group_size, channels)

    @classmethod
    def shapes(cls, shape: tuple[int, ...], scheme: Scheme) -> dict[str, tuple[int, ...]]:
        out_c, in_c, *kernel = shape
        blocks = (num_blocks(in_c, scheme.group_size), out_c)
        return {
            "weight_packed": conv_packed_shape(out_c, in_c, kernel, scheme.weight_type),
            "scales": blocks,
            "offsets": blocks,
        }

    @classmethod
    def tag_of(cls, shape: tuple[int, ...], scheme: Scheme, permuted: bool) -> dict[str, Any]:
        out_c, in_c, *kernel = shape
        return {
            "layout_version": LAYOUT_VERSION,
            "in_channels": in_c,
            "out_channels": out_c,
            "kernel_size": kernel,
            **weight_tag(scheme),
            "block_size": scheme.group_size,
            "offsets": scheme.has_zeros,
        }

    @classmethod
    def from_float(cls, weight: Tensor, scheme: Scheme) -> ConvWeight:
        """Round a filter to nearest.

        Args:
            weight: float16, bfloat16 or float32 ``[Co, Ci, Kh, Kw]``; meta gives meta.
            scheme: weight-only; with zero points they are offsets.

        Raises:
            ValueError: the scheme does not fit the filter, or a value is NaN or Inf.
            TypeError: the filter has another dtype.
        """
        q, scales, offsets = quantize_conv_weight(
            weight, scheme.bits, scheme.group_size, not scheme.has_zeros
        )
        return cls.from_quantized(q, scales, offsets, **scheme.conv_options)

    @classmethod
    def from_quantized(
        cls,
        q: Tensor,
        scales: Tensor,
        offsets: Tensor | None = None,
        *,
        bits: int,
        block_size: int = -1,
        where: str = "mixed_gemm.ConvWeight.from_quantized",
    ) -> ConvWeight:
        """Take a filter that is quantized already.

        Args:
            q: int8 ``[Co, Ci, Kh, Kw]``, values in the range of ``bits``.
            scales: ``[ceil(Ci / block_size), Co]``; its dtype is the weight's.
            offsets: the same or None.
            bits: 4 or 8. block_size: input channels that share a scale, -1 for all.
            where: what an error names.

        Raises:
            ValueError: a scalar is out of range, or a tensor does not fit the rest, has lost its
                storage or holds a value it must not.
            TypeError: ``q`` is not int8.
        """
        check_bits(where, bits)
        scheme = Scheme.weight_only(bits, block_size, "none" if offsets is None else "add")
        floats = {"scales": scales, "offsets": offsets}
        kept = cls.checked(where, q, ("Co", "Ci", "Kh", "Kw"), scheme, floats)
        kept["weight_packed"] = pack_filter(q, scheme.weight_type)
        return cls(kept, scheme, tuple(q.shape), scales.dtype)

    def dequantize(self, dtype: torch.dtype | None = None) -> Tensor:
        check_storage("QuantizedTensor", **self.tensors())
        return dense_filter(
            self.weight_packed,
            self.scales,
            self.offsets,
            **self.scheme.conv_options,
            in_c=self.shape[1],
            kernel_size=self.shape[2:],
            dtype=dtype or self.dtype,
        ).contiguous()  # as the strides of this tensor are; files take nothing else

    def requantized(self, dense: Tensor) -> ConvWeight:
        return type(self).from_float(dense.to(self.dtype), self.scheme)

    def _codes(self) -> Tensor:
        """int8 ``[Co, Ci, Kh, Kw]``."""
        dense = dense_filter(
            self.weight_packed,
            torch.ones_like(self.scales, dtype=torch.float32),
            None,
            **self.scheme.conv_options,
            in_c=self.shape[1],
            kernel_size=self.shape[2:],
            dtype=torch.float32,
        )
        return dense.to(torch.int8)

    def keeping(self, old: ConvWeight, same: Tensor) -> ConvWeight:
        """As of the base class, on codes that are unpacked for it.

        Args:
            old: ``[M, Ci, Kh, Kw]``. same: bool ``[Co]``.
        """
        parts: dict[str, Tensor | None] = {
            "weight_packed": pack_filter(
                spliced(self._codes(), old._codes(), same, 0), self.scheme.weight_type
            ),
            "scales": spliced(self.scales, old.scales, same, 1),
            "offsets": None,
        }
        if self.offsets is not None and old.offsets is not None:
            parts["offsets"] = spliced(self.offsets, old.offsets, same, 1)
        return type(self)(parts, self.scheme, self.shape, self.dtype)

    def cut(self, dim: int, start: int, stop: int) -> ConvWeight:
        raise NotImplementedError(
            "QuantizedTensor: the filters of a convolution are not sharded. Hint: replicate this "
            "module, or dequantize() it first"
        )

    @classmethod
    def join(cls, weights: Sequence[ConvWeight]) -> ConvWeight:
        raise NotImplementedError("QuantizedTensor: the filters of a convolution are not sharded")
