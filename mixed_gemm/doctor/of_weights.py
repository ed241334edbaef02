"""Checks of the ops that pack, repack and restore weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import ops, reference
from ..ops.conv_problem import channels_per_tap
from .draw import BITS, GROUP, Here, K, N, bounded, equal

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # the column in each 4 bits of a word, the lowest first


def words(codes: Tensor) -> Tensor:
    """Pack ``[..., 8]`` codes of 4 bits, the lowest bits first, into int32 ``[...]``."""
    whole = (codes.long() << (4 * torch.arange(8))).sum(-1)
    return torch.where(whole >= 2**31, whole - 2**32, whole).int()


def pack_weights(here: Here) -> float:
    q = here.integers(BITS, N, K)
    return equal(ops.unpack_weights(ops.pack_weights(here(q), BITS), BITS, N, K), q)


def pack_conv_weights(here: Here) -> float:
    """K is taps by channels, and the channels of a tap are padded with zeros."""
    q = here.integers(BITS, 24, 40, 3, 3)
    channels = channels_per_tap(40)
    packed = ops.pack_conv_weights(here(q), BITS)
    by_tap = torch.nn.functional.pad(q.flatten(2).transpose(1, 2), (0, channels - 40)).flatten(1)
    return equal(ops.unpack_weights(packed, BITS, 24, 9 * channels), by_tap)


def pack_codes(here: Here) -> float:
    codes = here.integers(BITS, N, K) + 8
    packed = ops.pack_codes(here(codes), "e2m1")
    return equal(ops.unpack_codes(packed, "e2m1", N, K), codes)


def dequantize_codes(here: Here) -> float:
    """Two roundings of float32 at most, and the one to the output."""
    codes, scales = here.integers(BITS, N, K) + 8, here.scales(K // GROUP, N)
    factor = here.scales(N, dtype=torch.float32)
    options: dict[str, Any] = {"weight": "e2m1", "group_size": GROUP}
    packed = ops.pack_codes(here(codes), "e2m1")
    out = ops.dequantize_codes(
        packed, here(scales), here(factor), **options, n=N, k=K, dtype=scales.dtype
    )
    w = reference.dequantize(codes, scales, factor=factor, **options)
    u, eta = reference.ROUNDING[out.dtype]
    return bounded(out, (w, (u + 3 * 2.0**-24) * w.abs() + eta))


def dequantize_weights(here: Here) -> float:
    """Three roundings of float32 at most, and the one to the output."""
    q, scales = here.integers(BITS, N, K), here.scales(K // GROUP, N)
    packed = ops.pack_weights(here(q), BITS)
    options: dict[str, Any] = {"bits": BITS, "group_size": GROUP, "n": N, "k": K}
    out = ops.dequantize_weights(packed, here(scales), **options)
    w = reference.dequantize(q, scales, group_size=GROUP)
    u, eta = reference.ROUNDING[out.dtype]
    return bounded(out, (w, (u + 4 * 2.0**-24) * w.abs() + eta))


def awq_words(here: Here) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Draw qweight, scales, qzeros of AutoAWQ, and q ``[N, K]`` and zeros of the reference."""
    q, zeros = here.integers(BITS, K, N), here.integers(BITS, K // GROUP, N)
    qweight, qzeros = (words((x + 8).view(x.shape[0], -1, 8)[..., AWQ_ORDER]) for x in (q, zeros))
    return qweight, here.scales(K // GROUP, N), qzeros, q.t().contiguous(), zeros.half()


def awq_repack(here: Here) -> float:
    qweight, _, _, q, _ = awq_words(here)
    return equal(ops.unpack_weights(ops.awq_repack(here(qweight)), BITS, N, K), q)


def gptq_repack(here: Here) -> float:
    q = here.integers(BITS, N, K)
    codes = (q + 8).t().reshape(K // 8, 8, N).transpose(1, 2)
    packed = ops.gptq_repack(here(words(codes)), bits=BITS)
    return equal(ops.unpack_weights(packed, BITS, N, K), q)


def awq_dequantize(here: Here) -> float:
    """At most 5 by 11 bits: the product is rounded once."""
    qweight, scales, qzeros, q, zeros = awq_words(here)
    out = ops.awq_dequantize(here(qweight), here(scales), here(qzeros))
    w = reference.dequantize(q, scales, zeros, group_size=GROUP)
    return equal(out, w.t().to(scales.dtype))
