"""Dense weights rounded to floats of 4 bits ("e2m1"), by the rules of MXFP4 and of NVFP4."""

from __future__ import annotations

import torch
from torch import Tensor

from .codes import nearest_codes
from .rounding import groups_of
from .row_blocks import by_rows, row_blocks

_LARGEST = 6.0  # magnitude of e2m1
_LARGEST_SCALE = 448.0  # magnitude of e4m3
_SCALE_OF_ZEROS = 0.125  # that writers of NVFP4 give to a group whose scale rounds to 0


def mxfp4_scales(largest: Tensor) -> tuple[Tensor, None]:
    """The scales of OCP Microscaling Formats (MX) 1.0: 2^(e - 2), e being the exponent of the
    largest magnitude of a group, so that this is below 8 of it. A group of zeros has the least
    scale.

    Args:
        largest: float32 ``[...]``, the largest magnitude of each group.

    Returns:
        scales, powers of two, float32 ``[...]``; and None.
    """
    exponent = torch.frexp(largest.double()).exponent - 3  # frexp has magnitudes in [0.5, 1)
    exponent = torch.where(largest == 0, -127, exponent).clamp(-127, 127)
    return torch.ldexp(torch.ones_like(largest, dtype=torch.float64), exponent).float(), None


def nvfp4_scales(largest: Tensor) -> tuple[Tensor, Tensor]:
    """The scales of compressed-tensors: the global scale makes the largest magnitude of the weight
    448 * 6, and a scale is the largest magnitude of its group over 6 in these units.

    Args:
        largest: float32 ``[...]``, the largest magnitude of each group of a weight.

    Returns:
        scales, numbers of float8_e4m3fn above 0, float32 ``[...]``; and the global scale, float32
        ``[]``, by which they are divided.
    """
    most = largest.max().clamp(min=torch.finfo(torch.float32).tiny)
    whole = _LARGEST_SCALE * _LARGEST / most
    whole = torch.where(whole.isfinite(), whole, 1.0)
    scale = (whole * (largest / _LARGEST)).clamp(max=_LARGEST_SCALE)
    scale = scale.to(torch.float8_e4m3fn).float()
    return torch.where(scale == 0, _SCALE_OF_ZEROS, scale), whole


# The rule of a format by the type of its scales.
SCALES = {"e8m0": mxfp4_scales, "e4m3": nvfp4_scales}


def round_float4(
    weight: Tensor, group_size: int, scale_dtype: str
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Codes, the nearest to w * global / scale, ties to even ones, with the scales that the format
    chooses; what is beyond 6 becomes 6.

    Args:
        weight: float16, bfloat16 or float32 ``[N, K]``, finite.
        group_size: elements of K that share a scale, -1 for all.
        scale_dtype: a name in ``SCALES``.

    Returns:
        codes int8 ``[N, K]``, scales bfloat16 ``[G, N]``, and the global scale float32 ``[N]``, the
        same for all, or None.
    """

    def largest(rows: Tensor) -> tuple[Tensor]:
        return (groups_of(rows, group_size).abs().amax(-1),)

    (of_groups,) = by_rows(largest, weight)
    scale, whole = SCALES[scale_dtype](of_groups)
    real = scale if whole is None else scale / whole
    codes = []
    for rows in row_blocks(weight):
        x = nearest_codes(groups_of(weight[rows], group_size) / real[rows, :, None], "e2m1")
        codes.append(x.flatten(1)[:, : weight.shape[1]])
    scales = scale.t().contiguous().to(torch.bfloat16)
    return torch.cat(codes), scales, None if whole is None else whole.repeat(weight.shape[0])
