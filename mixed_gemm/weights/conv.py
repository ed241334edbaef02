"""Filters of convolutions in 4- and 8-bit integers, with scales per block of input channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..ops.conv_layout import dense_filter, pack_conv_weights
from ..ops.conv_problem import check_block_size, conv_packed_shape, num_blocks
from ..ops.errors import ArgumentTypeError, ArgumentValueError, check_storage
from ..ops.problem import BITS, LAYOUT_VERSION, check_bits
from .rounding_conv import quantize_conv_weight
from .scheme import Scheme
from .tensor import Part, QuantizedTensor, part_problems
from .values import refuse_non_finite, refuse_out_of_range


class ConvWeight(QuantizedTensor):
    """A filter ``[Co, Ci, Kh, Kw]``, w = q * scale (+ offset); group_size of the scheme counts
    input channels, which share a scale with all taps.

    Parts:
        weight_packed: uint8, from ``pack_conv_weights``.
        scales: ``[ceil(Ci / group_size), Co]``. offsets: the same or None.
    """

    kind: ClassVar[str] = "conv"
    parts: ClassVar[tuple[Part, ...]] = (
        Part("weight_packed", (torch.uint8,), follows=False, finite=False, rows=0),
        Part("scales", rows=1),
        Part("offsets", rows=1),
    )

    weight_packed: Tensor
    scales: Tensor
    offsets: Tensor | None

    @classmethod
    def stores(cls, scheme: Scheme, dims: int) -> bool:
        return dims == 4 and scheme.is_weight_only and scheme.bits in BITS

    @classmethod
    def why_not(cls, scheme: Scheme, shape: tuple[int, ...]) -> str:
        try:
            check_block_size("scheme", scheme.group_size, shape[1])
        except ValueError as error:
            return str(error).removeprefix("scheme: ")
        return ""

    @classmethod
    def present(cls, scheme: Scheme) -> set[str]:
        return {"weight_packed", "scales"} | ({"offsets"} if scheme.has_zeros else set())

    @classmethod
    def shapes(cls, shape: tuple[int, ...], scheme: Scheme) -> dict[str, tuple[int, ...]]:
        out_c, in_c, *kernel = shape
        blocks = (num_blocks(in_c, scheme.group_size), out_c)
        return {
            "weight_packed": conv_packed_shape(out_c, in_c, kernel, scheme.bits),
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
            "bits": scheme.bits,
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
        return cls.from_quantized(
            q, scales, offsets, bits=scheme.bits, block_size=scheme.group_size
        )

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
            where: what an error names.

        Raises:
            ValueError: a scalar is out of range, or a tensor does not fit the rest, has lost its
                storage or holds a value it must not.
            TypeError: ``q`` is not int8.
        """
        check_bits(where, bits)
        if q.dim() != 4 or q.dtype != torch.int8:
            error = ArgumentTypeError if q.dtype != torch.int8 else ArgumentValueError
            raise error(f"{where}: q must be int8 [Co, Ci, Kh, Kw], got {q.dtype} {tuple(q.shape)}")
        floats = {"scales": scales, "offsets": offsets}
        check_storage(where, q=q, **floats)
        refuse_out_of_range(q, bits, where)
        check_block_size(where, block_size, q.shape[1])
        scheme = Scheme.weight_only(bits, block_size, "none" if offsets is None else "add")
        shape = tuple(q.shape)
        if problems := part_problems(cls, shape, scheme, floats):
            raise ArgumentValueError(f"{where}: " + "; ".join(problems))
        refuse_non_finite(floats, where, tuple(floats))
        kept = {x: t.detach().contiguous() for x, t in floats.items() if t is not None}
        return cls(
            {**kept, "weight_packed": pack_conv_weights(q, bits)}, scheme, shape, scales.dtype
        )

    def dequantize(self, dtype: torch.dtype | None = None) -> Tensor:
        check_storage("QuantizedTensor", **self.tensors())
        return dense_filter(
            self.weight_packed,
            self.scales,
            self.offsets,
            bits=self.scheme.bits,
            block_size=self.scheme.group_size,
            in_c=self.shape[1],
            kernel_size=self.shape[2:],
            dtype=dtype or self.dtype,
        )

    def requantized(self, dense: Tensor) -> ConvWeight:
        return type(self).from_float(dense.to(self.dtype), self.scheme)

    def cut(self, dim: int, start: int, stop: int) -> ConvWeight:
        raise NotImplementedError(
            "QuantizedTensor: the filters of a convolution are not sharded. Hint: replicate this "
            "module, or dequantize() it first"
        )

    @classmethod
    def join(cls, weights: Sequence[ConvWeight]) -> ConvWeight:
        raise NotImplementedError("QuantizedTensor: the filters of a convolution are not sharded")
