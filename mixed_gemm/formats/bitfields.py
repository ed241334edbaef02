"""Packed integers: the dense bit stream (value i in bits i * b of the row, lowest first) and the
one of compressed-tensors before 0.18 that never lets a value straddle two words.

A dense stream repeats every ``unit`` bytes: 1 for 2, 4 and 8 bits, 3 for 3 bits (8 values).
Little-endian hosts only, as torch itself.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable

import torch
from torch import Tensor

from ..ops.problem import ceil_div

_ROW_MAJOR = torch.contiguous_format
# Integers of as many bytes as a byte of the stream has values: a byte and its values are moved by
# shifts of whole tensors.
_SPREAD = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


def words_dense(count: int, bits: int) -> int:
    """32-bit words that hold ``count`` values."""
    return ceil_div(count * bits, 32)


def words_aligned(count: int, bits: int) -> int:
    """The same when a word holds 32 // bits whole values."""
    return ceil_div(count, 32 // bits)


def _bytes(x: Tensor) -> Tensor:
    """``[..., W]`` -> uint8 ``[..., W * itemsize]``. A last dimension of one element may have any
    stride and count as contiguous, which view does not accept."""
    x = x if x.is_contiguous() and x.stride(-1) == 1 else x.clone(memory_format=_ROW_MAJOR)
    return x.view(torch.uint8)


def _all_of(fields: Iterable[Tensor]) -> Tensor:
    """Integers with the bits of all fields."""
    return functools.reduce(torch.bitwise_or, fields)


def _unit_bytes(bits: int) -> int:
    return bits // math.gcd(bits, 8)


def unpack_dense(words: Tensor, bits: int, count: int) -> Tensor:
    """int32 or int16 ``[..., W]`` -> uint8 ``[..., count]``, the first ``count`` values."""
    unit, mask = _unit_bytes(bits), (1 << bits) - 1
    stream = _bytes(words)
    if unit == 1:
        per_byte = 8 // bits
        wide = stream.to(_SPREAD[per_byte])
        spread = _all_of(wide << (8 - bits) * i for i in range(per_byte))
        spread &= sum(mask << 8 * i for i in range(per_byte))
        return _bytes(spread)[..., :count]
    stream = torch.nn.functional.pad(stream, (0, -stream.shape[-1] % unit))
    parts = stream.view(*stream.shape[:-1], -1, unit).to(torch.int64)
    shifts = torch.arange(0, 8 * unit, 8, device=words.device)
    stream = (parts << shifts).sum(-1)
    values = [((stream >> shift) & mask).to(torch.uint8) for shift in range(0, 8 * unit, bits)]
    return torch.stack(values, -1).flatten(-2)[..., :count]


def unpack_aligned(words: Tensor, bits: int, count: int) -> Tensor:
    """int32 ``[..., W]`` with 32 // bits values in a word -> uint8 ``[..., count]``."""
    mask = (1 << bits) - 1
    values = [((words >> (bits * i)) & mask).to(torch.uint8) for i in range(32 // bits)]
    return torch.stack(values, -1).flatten(-2)[..., :count]


def pack_dense(codes: Tensor, bits: int) -> Tensor:
    """uint8 ``[..., count]``, values below 2^bits -> int32 ``[..., ceil(count * bits / 32)]``; the
    rest of the last word is zero."""
    unit = _unit_bytes(bits)
    per_unit = 8 * unit // bits
    count = codes.shape[-1]
    codes = torch.nn.functional.pad(codes, (0, -count % per_unit))
    if unit == 1:
        flat = codes.clone(memory_format=_ROW_MAJOR).flatten().view(_SPREAD[per_unit])
        spread = flat.view(*codes.shape[:-1], codes.shape[-1] // per_unit)
        stream = (_all_of(spread >> (8 - bits) * i for i in range(per_unit)) & 255).to(torch.uint8)
    else:
        shifts = torch.arange(0, 8 * unit, bits, device=codes.device)
        values = codes.reshape(*codes.shape[:-1], -1, per_unit).to(torch.int64)
        stream = _bytes((values << shifts).sum(-1).unsqueeze(-1))[..., :unit].flatten(-2)
    stream = stream[..., : ceil_div(count * bits, 8)]
    stream = torch.nn.functional.pad(stream, (0, -stream.shape[-1] % 4))
    return stream.clone(memory_format=_ROW_MAJOR).view(torch.int32)


def to_signed(codes: Tensor, bits: int) -> Tensor:
    """uint8 codes -> int8, less 2^(bits-1): the difference wraps at 8 bits, as int8 reads it."""
    return (codes - (1 << (bits - 1))).view(torch.int8)


def to_codes(q: Tensor, bits: int) -> Tensor:
    """The inverse of :func:`to_signed`."""
    return q.view(torch.uint8) + (1 << (bits - 1))
