"""The numbers that codes stand for, and scales and zero points of groups."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...ops.errors import wrong_value
from ...ops.problem import WEIGHTS, integer_range, num_groups
from ...weights.fp8_blocks import block_of
from ...weights.rounding import nonzero_scale
from ...weights.rounding_fp8 import FP8_MAX
from ...weights.row_blocks import row_blocks
from ...weights.scheme import FLOAT8, Scheme
from .byte_scales import ByteScales
from .numbers import nearest_


@dataclass(frozen=True)
class Range:
    """The codes of a scheme: integers, or the numbers that they stand for.

    low, high: the least and the largest. group: elements of K that share a scale. has_zeros:
    whether groups have zero points, which are codes. dtype: in which scales are stored. rows:
    output channels that share them, 0 is all. numbers: the weight type whose numbers codes are
    taken for, "" of integers. scale_dtype: of scales that are a byte in files, as of ``Side``; None
    of others.
    """

    low: float
    high: float
    group: int
    has_zeros: bool
    dtype: torch.dtype
    rows: int = 1
    numbers: str = ""
    scale_dtype: str | None = None

    @classmethod
    def of(cls, scheme: Scheme, k: int, dtype: torch.dtype, bits: int | None = None) -> Range:
        """Return the codes of a scheme's weights; ``bits`` fewer than it stores leave its outer
        codes unused.

        Raises:
            ValueError: ``bits`` are given for numbers that are no integers, which have no outer
                ones.
        """
        name = scheme.weight_type
        known = WEIGHTS.get(name)
        if bits is not None and (known is None or not known.is_integer):
            what = "float8" if name == FLOAT8 else name
            wrong_value("quantize_", "bits", f"be None for {what}", str(bits))
        if name == FLOAT8:
            whole = (0 if scheme.weights.strategy == "tensor" else 1, k)
            rows, group = block_of(scheme, (0, k)) or whole
            return cls(-FP8_MAX, FP8_MAX, group, False, torch.float32, rows, FLOAT8)
        group = k if scheme.group_size == -1 else scheme.group_size
        if known is not None and not known.is_integer:
            ends = min(known.values), max(known.values)
            of_bytes = scheme.weights.scale_dtype
            return cls(*ends, group, False, dtype, numbers=name, scale_dtype=of_bytes)
        least, most = integer_range(scheme.weight_type)
        if bits is not None:
            least, most = max(least, -(1 << (bits - 1))), min(most, (1 << (bits - 1)) - 1)
        return cls(least, most, group, scheme.has_zeros, dtype)

    @property
    def codes_are(self) -> tuple[float, float, str]:
        """The arguments of :func:`nearest_` behind the numbers to round."""
        return self.low, self.high, self.numbers

    def nearest(self, x: Tensor) -> Tensor:
        """Return the nearest code of every number, float32."""
        return nearest_(x.clone(), *self.codes_are)

    def pooled(self, x: Tensor, how: str = "sum") -> Tensor:
        """Reduce over the rows that share scales, for each of them: the sum, or the largest
        ("amax").

        Args:
            x: ``[N, ...]``.
        """
        n = x.shape[0]
        rows = self.rows or n
        if rows == 1:
            return x
        padded = x.new_zeros(-(-n // rows) * rows, *x.shape[1:])
        padded[:n] = x
        found: Tensor = getattr(padded.view(-1, rows, *x.shape[1:]), how)(1)
        return found.repeat_interleave(rows, 0)[:n]


@dataclass
class Grid:
    """A grid of values, w = (q - zero) * scale. scale, zero: float32 ``[N, G]``. of_bytes: the
    scales that there are, where these are a byte in files."""

    range: Range
    scale: Tensor
    zero: Tensor
    of_bytes: ByteScales | None = None

    def stored(self, scale: Tensor) -> Tensor:
        """Return the nearest scales that are stored, float32, never 0."""
        if self.of_bytes is not None:
            return self.of_bytes.nearest(scale)
        return nonzero_scale(scale, self.range.dtype)

    def of_rows(self, rows: slice) -> Grid:
        """Return the grid of some output channels."""
        return replace(self, scale=self.scale[rows], zero=self.zero[rows])

    def expanded(self, k: int) -> tuple[Tensor, Tensor]:
        """Return the scale and the zero of every element, ``[N, K]``."""
        size = self.range.group
        scale, zero = (x.repeat_interleave(size, 1)[:, :k] for x in (self.scale, self.zero))
        return scale, zero

    def codes(self, weight: Tensor) -> Tensor:
        """Return the nearest codes, float32 ``[N, K]``."""
        found = []
        for rows in row_blocks(weight):
            scale, zero = self.of_rows(rows).expanded(weight.shape[1])
            found.append(self.range.nearest(weight[rows] / scale + zero))
        return torch.cat(found)

    def values(self, codes: Tensor) -> Tensor:
        scale, zero = self.expanded(codes.shape[1])
        return (codes - zero) * scale


def grouped(x: Tensor, size: int) -> Tensor:
    """Reshape ``[N, K]`` to ``[N, G, size]``, the ragged end padded with zeros."""
    k = x.shape[-1]
    groups = num_groups(k, size)
    padded = torch.nn.functional.pad(x, (0, groups * size - k))
    return padded.view(*x.shape[:-1], groups, size)
