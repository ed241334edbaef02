"""Dense weights rounded to floats of 4 bits ("e2m1"), by the rules of MXFP4 and of NVFP4."""

from __future__ import annotations

import torch
from torch import Tensor

from .codes import nearest_codes
from .rounding import groups_of

_LARGEST = 6.0  # magnitude of e2m1
_LARGEST_SCALE = 448.0  # magnitude of e4m3
_SCALE_OF_ZEROS = 0.125  # that writers of NVFP4 give to a group whose scale rounds to 0


def _as_matrix(codes: Tensor, k: int) -> Tensor:
    return codes.flatten(1)[:, :k].contiguous()


def round_mxfp4(weight: Tensor, group_size: int) -> tuple[Tensor, Tensor]:
    """Codes and scales after OCP Microscaling Formats (MX) 1.0: a scale is 2^(e - 2), e being the
    exponent of the largest magnitude of its group, so that this is below 8 of it; what is beyond 6
    becomes 6, and ties go to even codes. A group of zeros has the least scale.

    Args:
        weight: float16, bfloat16 or float32 ``[N, K]``, finite.
        group_size: elements of K that share a scale, -1 for all.

    Returns:
        codes int8 ``[N, K]``, scales bfloat16 ``[G, N]``.
    """
    x = groups_of(weight, group_size)
    largest = x.abs().amax(-1, keepdim=True).double()
    exponent = torch.frexp(largest).exponent - 3  # frexp has magnitudes in [0.5, 1)
    exponent = torch.where(largest == 0, -127, exponent).clamp(-127, 127)
    scaled = torch.ldexp(x.double(), -exponent).float()
    codes = _as_matrix(nearest_codes(scaled, "e2m1"), weight.shape[1])
    scales = torch.ldexp(torch.ones_like(largest), exponent).squeeze(-1)
    return codes, scales.t().contiguous().to(torch.bfloat16)


def round_nvfp4(weight: Tensor, group_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Codes and scales as compressed-tensors has them: the global scale makes the largest magnitude
    of the weight 448 * 6, a scale is the largest magnitude of its group over 6 in these units,
    rounded to float8_e4m3fn, and codes are the nearest to w * global / scale, ties to even ones.

    Args:
        weight: float16, bfloat16 or float32 ``[N, K]``, finite.
        group_size: elements of K that share a scale, -1 for all.

    Returns:
        codes int8 ``[N, K]``, scales bfloat16 ``[G, N]``, the global scale float32 ``[N]``, the
        same for all.
    """
    x = groups_of(weight, group_size)
    largest = x.abs().amax(-1, keepdim=True)
    most = largest.max().clamp(min=torch.finfo(torch.float32).tiny)
    whole = _LARGEST_SCALE * _LARGEST / most
    whole = torch.where(whole.isfinite(), whole, 1.0)
    scale = (whole * (largest / _LARGEST)).clamp(max=_LARGEST_SCALE)
    scale = scale.to(torch.float8_e4m3fn).float()
    scale = torch.where(scale == 0, _SCALE_OF_ZEROS, scale)
    codes = _as_matrix(nearest_codes(x / (scale / whole), "e2m1"), weight.shape[1])
    scales = scale.squeeze(-1).t().contiguous().to(torch.bfloat16)
    return codes, scales, whole.repeat(weight.shape[0])
