"""The numbers of a weight type in rising order, and which of them is nearest to another number."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from ..ops.problem import WEIGHTS

_UPPER = 1 << 16  # values of the upper half of a float32


@dataclass(frozen=True)
class Numbers:
    """The numbers of a weight type that is no integer.

    values: in rising order, float32 ``[C]``. codes: of each, int8 ``[C]``; a value with two codes,
    as 0 and -0, has the first of them. ends: for each value but the last the largest float32 that
    is rounded to it and not to the next, ``[C - 1]``. first, bound: by the upper half of a float32,
    as a signed number from its least on, the index of the value for the smallest number with this
    half, int32, and the number above which the index is one more, float32.
    """

    values: Tensor
    codes: Tensor
    ends: Tensor
    first: Tensor
    bound: Tensor

    def index(self, x: Tensor) -> Tensor:
        """Return the index of the value that each number is rounded to, int32.

        A CPU's torch.bucketize takes 45 ns for a number, since no branch of its search can be
        foreseen; two tables by the upper half of the number take 2.

        Args:
            x: float32, finite, any shape.
        """
        x = x.contiguous()
        if x.device.type != "cpu":
            return torch.bucketize(x, self.ends, out_int32=True)
        upper = (x.view(torch.int32).flatten() >> 16).add_(_UPPER // 2)
        above = x.flatten() > self.bound.index_select(0, upper)
        return self.first.index_select(0, upper).add_(above).view(x.shape)

    def nearest(self, x: Tensor) -> Tensor:
        """Return the nearest values, float32. Arguments as of :meth:`index`."""
        return self.values.index_select(0, self.index(x).flatten()).view(x.shape)

    def nearest_codes(self, x: Tensor) -> Tensor:
        """Return the codes of the nearest values, int8. Arguments as of :meth:`index`."""
        return self.codes.index_select(0, self.index(x).flatten()).view(x.shape)


def numbers_of(weight: str, device: torch.device) -> Numbers:
    """The numbers of a weight type. A tie goes to the even code, as casts to a float type have it;
    of a book to the lower number, as bitsandbytes has it. What is beyond the largest number becomes
    that.

    Args:
        weight: a name in ``ops.problem.WEIGHTS`` of a type that is no integer.
    """
    known = WEIGHTS[weight]
    return _numbers(known.values, known.is_book, device)


@functools.cache
def _numbers(values: tuple[float, ...], is_book: bool, device: torch.device) -> Numbers:
    """Kept, since a recording of a GPU reads the same memory in each of its runs."""
    with torch.inference_mode(False):
        code_of = {value: code for code, value in reversed(list(enumerate(values)))}
        rising = torch.tensor(sorted(code_of), dtype=torch.float32, device="cpu")
        codes = torch.tensor([code_of[x] for x in sorted(code_of)], dtype=torch.int8, device="cpu")
        ends = (rising[1:] + rising[:-1]) / 2
        if not is_book:  # a tie goes up where the lower code is odd
            below = torch.nextafter(ends, torch.full_like(ends, -torch.inf))
            ends = torch.where(codes[:-1] % 2 == 1, below, ends)
        first, bound = _by_upper_half(ends)
        return Numbers(*(x.to(device) for x in (rising, codes, ends, first, bound)))


def _by_upper_half(ends: Tensor) -> tuple[Tensor, Tensor]:
    """``first`` and ``bound`` of :class:`Numbers`. Two ends never have one upper half: they would
    be closer than bfloat16 has numbers."""
    halves = torch.arange(-_UPPER // 2, _UPPER // 2, dtype=torch.int32, device="cpu") << 16
    # The lower half grows away from zero: of negative numbers the least has all of its bits set.
    near, far = halves.view(torch.float32), (halves | 0xFFFF).view(torch.float32)
    far = torch.where(near.isinf(), near, far)  # the rest of that half is NaN
    least, most = torch.where(halves < 0, far, near), torch.where(halves < 0, near, far)
    first = torch.bucketize(least, ends, out_int32=True)
    last = torch.bucketize(most, ends, out_int32=True)
    assert bool((last - first <= 1).all()), ends
    next_end = ends[first.clamp(max=len(ends) - 1).long()]
    return first, torch.where(last > first, next_end, torch.inf)
