"""Scales of a byte as ``FloatWeight`` stores them: numbers of the dtype of activations, and a
factor for each output channel, and back, to the bit.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..ops.errors import ArgumentValueError, dtype_name
from .rounding import groups_of

_LEAST_E8M0 = 2.0**-127
_HINTS = {torch.float16: torch.bfloat16, torch.bfloat16: torch.float32}


def _powers(scales: Tensor) -> Tensor:
    """Exponents e of ``[N]`` columns, int32: the largest magnitude is in [2^e, 2^(e + 1)); 0 of a
    column of zeros."""
    largest = scales.double().abs().amax(0) if len(scales) else scales.new_zeros(scales.shape[1])
    exponents = torch.frexp(largest.double()).exponent - 1
    return torch.where(largest == 0, 0, exponents)


def stored_scales(
    codes: Tensor,
    scales: Tensor,
    global_scale: Tensor | None,
    scale_dtype: str,
    group_size: int,
    dtype: torch.dtype,
    where: str,
) -> tuple[Tensor, Tensor]:
    """Return the scales and the factor that a weight is stored with.

    Args:
        codes: int8 ``[N, K]``, of "e2m1". scales: ``[G, N]``, numbers of ``scale_dtype``.
        global_scale: float32 ``[N]`` that values are divided by, or None.
        scale_dtype: "e8m0" or "e4m3". group_size: elements of K that share a scale, -1 for all.
        dtype: to store the scales in. where: what an error names.

    Returns:
        scales ``[G, N]`` in ``dtype``, the largest magnitude of a column in [1, 2), and factor
        float32 ``[N]``. The e8m0 scale 2^-127 of a group of zeros, which writers give to one, may
        become 0.

    Raises:
        ValueError: ``dtype`` does not have a scale, or the factor is no normal float32.
    """
    power = _powers(scales)
    exact = torch.ldexp(scales.double(), -power)
    stored = exact.to(dtype)
    lost = stored.double() != exact
    if scale_dtype == "e8m0" and bool(lost.any()):
        is_zero = ~groups_of(codes & 7, group_size).any(-1).t()
        spare = lost & is_zero & (scales.double() == _LEAST_E8M0)
        stored, lost = torch.where(spare, 0.0, stored), lost & ~spare
    if bool(lost.any()):
        column = int(lost.any(0).nonzero()[0])
        wide = _HINTS.get(dtype)
        hint = "" if wide is None else f". Hint: dtype={wide}, whose exponents are more"
        span = int(power[column]) - int(
            torch.frexp(scales[:, column].double()[scales[:, column] != 0].abs().min()).exponent - 1
        )
        raise ArgumentValueError(
            f"{where}: {dtype_name(dtype)} has no scales that are {span} binades apart, as those "
            f"of output channel {column} are{hint}"
        )
    factor = torch.ldexp(torch.ones_like(power, dtype=torch.float64), power)
    if global_scale is None:
        return stored, factor.float()
    factor = (factor / global_scale.double()).float()
    least = torch.finfo(torch.float32).tiny
    outside = ~(factor.isfinite() & (factor >= least))
    if bool(outside.any()):
        column = int(outside.nonzero()[0])
        raise ArgumentValueError(
            f"{where}: 1 / global_scale must be a normal float32, got a global_scale of "
            f"{float(global_scale[column])} for output channel {column}"
        )
    return stored, factor


def file_scales(
    scales: Tensor, factor: Tensor, global_scale: Tensor | None, scale_dtype: str
) -> Tensor:
    """The numbers of ``scale_dtype`` that :func:`stored_scales` was given, bfloat16 ``[G, N]``,
    which has all of both types.

    Args:
        scales: ``[G, N]``. factor: float32 ``[N]``. global_scale: float32 ``[N]``, or None.
    """
    power = factor.double()
    if global_scale is not None:  # a rounding away from a power of two
        power = torch.exp2(torch.log2(power * global_scale.double()).round())
    found = scales.double() * power
    if scale_dtype == "e8m0":
        found = torch.where(found == 0, _LEAST_E8M0, found)
    return found.to(torch.bfloat16)
