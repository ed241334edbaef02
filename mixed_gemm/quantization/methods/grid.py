"""The numbers that codes stand for; scales and zero points of groups, searched so that rounding
costs least.

The cost of an element is the square of what rounding changes times a weight: how large its input
is, squared and summed over calibration (the diagonal of the second moments). Without data a search
that may clip hurts: with zero points of groups of 64 the perplexity of SmolLM2 on two texts rose by
26 and 28 % by rounding, 36 and 30 % by the range with the least squared error, 16 and 23 % by the
best zero point that clips nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...ops.errors import wrong_value
from ...ops.problem import WEIGHTS, integer_range, num_groups
from ...weights.fp8_blocks import block_of
from ...weights.rounding import nonzero_scale
from ...weights.rounding_fp8 import FP8_MAX
from ...weights.scheme import FLOAT8, Scheme
from .byte_scales import ByteScales
from .numbers import nearest_

SHRINKS = 40  # ranges that are tried, from the whole range of a group down to LEAST of it
LEAST = 0.4
REFITS = 3  # fits of the scale to the codes, each followed by rounding again


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
        scale, zero = self.expanded(weight.shape[1])
        return self.range.nearest(weight / scale + zero)

    def values(self, codes: Tensor) -> Tensor:
        scale, zero = self.expanded(codes.shape[1])
        return (codes - zero) * scale


def grouped(x: Tensor, size: int) -> Tensor:
    """Reshape ``[N, K]`` to ``[N, G, size]``, the ragged end padded with zeros."""
    k = x.shape[-1]
    groups = num_groups(k, size)
    padded = torch.nn.functional.pad(x, (0, groups * size - k))
    return padded.view(*x.shape[:-1], groups, size)


def _round(x: Tensor, scale: Tensor, zero: Tensor, of: Range) -> Tensor:
    return of.nearest(x / scale + zero)


def _starts(x: Tensor, of: Range) -> list[tuple[Tensor, Tensor]]:
    """Return (scale, zero) ``[N, G, 1]`` of the whole range of each group: with zero points from
    the smallest to the largest; without, the larger magnitude at the code of larger magnitude, and
    the same mirrored, unless codes are alike on both sides."""
    if of.numbers:
        largest = of.pooled(x.abs().amax(-1, keepdim=True), "amax")
        return [(nonzero_scale(largest / of.high, of.dtype), torch.zeros_like(largest))]
    if of.has_zeros:
        smallest = x.amin(-1, keepdim=True).clamp(max=0)
        largest = x.amax(-1, keepdim=True).clamp(min=0)
        scale = nonzero_scale((largest - smallest) / (of.high - of.low), of.dtype)
        return [(scale, (of.low - smallest / scale).round().clamp(of.low, of.high))]
    extreme = x.gather(-1, x.abs().argmax(-1, keepdim=True))
    scale = nonzero_scale(extreme / of.low, of.dtype)
    return [(scale, torch.zeros_like(scale)), (-scale, torch.zeros_like(scale))]


def whole_range(weight: Tensor, of: Range) -> Grid:
    """Return a grid that spans each group from its smallest weight to its largest.

    Args:
        weight: float32 ``[N, K]``. of: the codes.
    """
    x = grouped(weight.float(), of.group)
    if of.scale_dtype is not None:
        return _usual(x, of)
    scale, zero = _starts(x, of)[0]
    return Grid(of, scale.squeeze(-1), zero.squeeze(-1))


def unclipped(weight: Tensor, of: Range) -> Grid:
    """Find the scale and zero point of each group by which rounding to nearest costs least, among
    those that clip nothing: without data nobody knows which large weight matters, and a zero point
    that is rounded after the scale was chosen clips one end of the range by up to half a step.

    Without zero points the largest magnitude is at the code of the largest magnitude.

    Args:
        weight: float32 ``[N, K]``. of: the codes.
    """
    x = grouped(weight.float(), of.group)
    if not of.has_zeros:
        return whole_range(weight, of)
    scale, zero = _starts(x, of)[0]
    least = torch.full_like(scale, torch.inf)
    for code in range(int(of.low), int(of.high) + 1):
        tried = torch.full_like(scale, float(code))
        wide = widest(x, tried, of)
        found = ((_round(x, wide, tried, of) - tried) * wide - x).square().sum(-1, keepdim=True)
        better = found < least
        scale, zero = torch.where(better, wide, scale), torch.where(better, tried, zero)
        least = torch.where(better, found, least)
    return Grid(of, scale.squeeze(-1), zero.squeeze(-1))


def widest(x: Tensor, zero: Tensor, of: Range) -> Tensor:
    """Return the smallest scale by which no weight of a group is clipped, ``[N, G, 1]``.

    Args:
        x: ``[N, G, size]``. zero: codes, ``[N, G, 1]``.
    """
    above, below = x.amax(-1, keepdim=True).clamp(min=0), -x.amin(-1, keepdim=True).clamp(max=0)
    # A zero point at an end of the codes has no room on that side.
    up = torch.where(above > 0, above / (of.high - zero), 0.0)
    down = torch.where(below > 0, below / (zero - of.low), 0.0)
    return nonzero_scale(torch.maximum(up, down), of.dtype)


def search(
    weight: Tensor, of: Range, importance: Tensor | None = None, shrinks: int = SHRINKS
) -> Grid:
    """Find the scale and zero point of each group by which rounding to nearest costs least, among a
    shrinking range and, from there, what least squares gives for the codes.

    Args:
        weight: float32 ``[N, K]``. of: the codes.
        importance: ``[K]``, what a squared error of a column costs; None: 1.
        shrinks: ranges that are tried; of scales that are a byte, at most how many others.
    """
    x = grouped(weight.float(), of.group)
    cost = torch.ones(weight.shape[1], device=x.device) if importance is None else importance
    cost = grouped(cost.float()[None], of.group)[0]

    if of.scale_dtype is not None:
        return _best_byte(x, of, cost, shrinks)

    def error(scale: Tensor, zero: Tensor) -> Tensor:
        back = (_round(x, scale, zero, of) - zero) * scale
        return of.pooled(((back - x).square() * cost).sum(-1, keepdim=True))

    best, least = None, None
    for scale, zero in _starts(x, of):
        for step in range(shrinks):
            shrunk = nonzero_scale(scale * (1 - (1 - LEAST) * step / shrinks), of.dtype)
            at = zero
            if of.has_zeros:  # the middle of the range stays where it is
                middle = (of.low + of.high) / 2
                at = (middle - (middle - zero) * scale / shrunk).round().clamp(of.low, of.high)
            found = error(shrunk, at)
            if best is None or least is None:
                best, least = (shrunk, at), found
                continue
            better = found < least
            best = (torch.where(better, shrunk, best[0]), torch.where(better, at, best[1]))
            least = torch.where(better, found, least)
    assert best is not None and least is not None
    scale, zero = best
    for _ in range(REFITS):
        steps = _round(x, scale, zero, of) - zero
        fitted = of.pooled((cost * steps * x).sum(-1, keepdim=True)) / (
            of.pooled((cost * steps.square()).sum(-1, keepdim=True)).clamp(min=1e-30)
        )
        fitted = nonzero_scale(fitted, of.dtype)
        found = error(fitted, zero)
        better = found < least
        scale = torch.where(better, fitted, scale)
        least = torch.where(better, found, least)
    return Grid(of, scale.squeeze(-1), zero.squeeze(-1))


def _usual(x: Tensor, of: Range) -> Grid:
    """Return the grid with the scales that the format chooses, of ``[N, G, size]``."""
    assert of.scale_dtype is not None
    of_bytes, scale = ByteScales.usual(x.abs().amax(-1), of.scale_dtype)
    return Grid(of, scale, torch.zeros_like(scale), of_bytes)


def _best_byte(x: Tensor, of: Range, cost: Tensor, most: int) -> Grid:
    """Find the best scales among the usual ones and those beside them; these where none is better.

    Args:
        x: ``[N, G, size]``. of: the codes. cost: of a squared error, ``[G, size]``. most: scales
            that are tried for each group beside the usual one.
    """
    grid = _usual(x, of)
    assert grid.of_bytes is not None

    def error(scale: Tensor) -> Tensor:
        wide = scale[..., None]
        return ((of.nearest(x / wide) * wide - x).square() * cost).sum(-1)

    best, least = grid.scale, error(grid.scale)
    for tried in grid.of_bytes.beside(grid.scale, most):
        found = error(tried)
        better = found < least
        best, least = torch.where(better, tried, best), torch.where(better, found, least)
    return replace(grid, scale=best)
