"""The last step of every loader: signed integers, zero points and g_idx to a QuantizedWeight."""

from __future__ import annotations

import torch
from torch import Tensor

from ..ops.problem import ceil_div
from ..weights.exchange import QuantizedWeight
from ..weights.scheme import Scheme
from .bitfields import to_signed
from .layer import LayerInfo, LayerTensors


def from_codes(
    layer: LayerTensors,
    info: LayerInfo,
    codes: Tensor,
    scales: Tensor,
    zero_codes: Tensor | None,
    g_idx: Tensor | None = None,
) -> QuantizedWeight:
    """w = (code - zero) * scale.

    Args:
        codes: uint8 ``[N, K]``, below 2^bits.
        scales: ``[G, N]``.
        zero_codes: integers ``[G, N]``, 0..2^bits (GPTQ v1 reaches the last); None means
            2^(bits-1).
        g_idx: ``[K]``, the group of every column, or None.
    """
    q = to_signed(codes, info.bits)
    zeros = None if zero_codes is None else signed_zeros(zero_codes, info.bits, scales.dtype)
    return from_integers(layer, info, q, scales, zeros, g_idx)


def signed_zeros(zero_codes: Tensor, bits: int, dtype: torch.dtype) -> Tensor:
    """Zero points ``[G, N]`` of codes of so many bits, as those of the signed integers: up to 256
    in magnitude, exact in bfloat16 too."""
    return (zero_codes.to(torch.int16) - (1 << (bits - 1))).to(dtype)


def from_integers(
    layer: LayerTensors,
    info: LayerInfo,
    q: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    g_idx: Tensor | None = None,
) -> QuantizedWeight:
    """w = (q - zero) * scale, everything signed; ``q`` in the range of its weight type."""
    if zeros is not None and not bool(zeros.any()):
        zeros = None  # symmetric: the kernels skip the subtraction
    permutation = None if g_idx is None else act_order(layer, info, g_idx)
    if permutation is not None:
        q = q[:, permutation]
    return QuantizedWeight.of_codes(
        layer.name,
        q.contiguous(),
        scales.contiguous(),
        None if zeros is None else zeros.contiguous(),
        scheme=Scheme.of_file(
            info.scheme.weight_type, info.group_size, "none" if zeros is None else "sub"
        ),
        bias=layer.bias(info.out_features),
        permutation=permutation,
    )


def act_order(layer: LayerTensors, info: LayerInfo, g_idx: Tensor) -> Tensor | None:
    """The order of the columns that makes groups contiguous; None when they are already, or when
    there is one group only. ``g_idx`` is the role's tensor ``[K]``."""
    k = info.in_features
    if info.group_size == -1:
        return None
    contiguous = torch.arange(k, device=g_idx.device) // info.group_size
    found = g_idx.to(torch.int64)
    if torch.equal(found, contiguous):
        return None
    permutation = found.argsort(stable=True)
    if not torch.equal(found[permutation], contiguous):
        groups = ceil_div(k, info.group_size)
        counts = found.clamp(-1, groups).add(1).bincount(minlength=groups + 2)[1:-1].tolist()
        raise layer.error(
            "g_idx" if layer.has("g_idx") else "weight_g_idx",
            f"must give {info.group_size} of the {k} columns to each of {groups} groups (the last "
            f"may have fewer), got {int(found.min())}..{int(found.max())} with {counts[:8]} ... of "
            "them",
        )
    return permutation
