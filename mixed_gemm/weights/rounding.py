"""Round-to-nearest quantization of one weight. No calibration data; ``quantize_`` applies it to a
whole model.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..ops.errors import ArgumentTypeError, ArgumentValueError, check_storage
from ..ops.problem import (
    DTYPES,
    check_bits,
    check_group_size,
    integer_range,
    integer_weight,
    num_groups,
)
from .row_blocks import by_rows, is_plain


def groups_of(weight: Tensor, group_size: int) -> Tensor:
    """``[N, K]`` -> float32 ``[N, G, group]``; the ragged end is padded with zeros, which never
    move a maximum of magnitudes nor a range that includes zero."""
    n, k = weight.shape
    size = k if group_size == -1 else group_size
    groups = num_groups(k, group_size)
    return torch.nn.functional.pad(weight.float(), (0, groups * size - k)).view(n, groups, size)


def nonzero_scale(scale: Tensor, dtype: torch.dtype) -> Tensor:
    """The scale as it will be stored, float32. An exact 0 (a group of zeros) becomes 1, so that
    q = 0 and nothing divides by zero.

    Below the normal numbers of ``dtype``, which in float16 are 6.1e-5 and more, scales are as far
    apart as the smallest is large (6e-8), and the nearest one may be 0. There it is the next one
    away from zero: the smallest that clips no weight, so that groups of small weights keep values,
    each within half a step of what it was.
    """
    stored = scale.to(dtype).float()
    info = torch.finfo(dtype)
    step = info.tiny * info.eps  # between subnormal numbers
    away = ((scale.double().abs() / step).ceil() * step).float() * scale.sign()
    stored = torch.where(scale.abs() < info.tiny, away, stored)
    return torch.where(stored == 0, 1.0, stored)


def extremes(x: Tensor) -> Tensor:
    """The element of largest magnitude of each group, with its sign; the first of several.

    Args:
        x: float32 ``[..., size]``.

    Returns:
        float32 ``[..., 1]``.
    """
    if not is_plain(x):  # such tensors cannot choose groups by their numbers
        return x.gather(-1, x.abs().argmax(-1, keepdim=True))
    high, low = x.amax(-1, keepdim=True), x.amin(-1, keepdim=True)
    extreme = torch.where(high > -low, high, low)
    # An argmax of magnitudes for all groups takes 3 times as long; few have both signs.
    both = (high == -low).squeeze(-1)
    alike = x[both]
    extreme[both] = alike.gather(-1, alike.abs().argmax(-1, keepdim=True))
    return extreme


def too_small(scales: Tensor, dtype: torch.dtype) -> Tensor | None:
    """Which scales are among the subnormal numbers of ``dtype`` and none of them, so that a cast
    loses more than a rounding; None where no scale is, and of tensors without values.

    Args:
        scales: of any float dtype.
    """
    if scales.is_meta or dtype not in DTYPES or type(scales) is not Tensor:
        return None
    exact = scales.float()
    small = (exact.abs() < torch.finfo(dtype).tiny) & (exact.to(dtype).float() != exact)
    return small if bool(small.any()) else None


def _symmetric(x: Tensor, weight: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    # The weight of largest magnitude, with its sign, maps to the lowest integer, so the scale may
    # be negative. RMS error over RMS weight, MiniLM's linears, int4 group 32 / 128 / per channel:
    #   absmax / 7        0.1017 / 0.1276 / 0.1572
    #   absmax / 7.5      0.0995 / 0.1205 / 0.1473
    #   -signed max / 8   0.0899 / 0.1121 / 0.1379
    # Lowest for int8, Gaussian, Laplace and Student-t weights too.
    low, high = integer_range(weight)
    scale = nonzero_scale(extremes(x) / low, dtype)
    return torch.round(x / scale).clamp(low, high), scale


def _asymmetric(x: Tensor, weight: str, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    # The range includes 0, so the zero point is an integer that q itself can take.
    low, high = integer_range(weight)
    smallest = x.amin(-1, keepdim=True).clamp(max=0)
    largest = x.amax(-1, keepdim=True).clamp(min=0)
    scale = nonzero_scale((largest - smallest) / (high - low), dtype)
    # + 0 makes -0 a 0, so that integers in files come back to the bit.
    zero = torch.round(low - smallest / scale).clamp(low, high) + 0
    return torch.round(x / scale + zero).clamp(low, high), scale, zero


def checked_dense(where: str, weight: Tensor, axes: tuple[str, ...]) -> Tensor:
    """A dense weight with one dimension for each of ``axes``, detached.

    Raises:
        ValueError: it has other dimensions, is empty, has lost its storage, or holds NaN or Inf.
        TypeError: it has another dtype.
    """
    if weight.dim() != len(axes) or weight.dtype not in DTYPES:
        error = ArgumentTypeError if weight.dtype not in DTYPES else ArgumentValueError
        raise error(
            f"{where}: weight must be a {len(axes)}-D float16, bfloat16 or float32 tensor "
            f"[{', '.join(axes)}], got {tuple(weight.shape)} {weight.dtype}"
        )
    if weight.numel() == 0:
        raise ValueError(f"{where}: weight must not be empty, got {tuple(weight.shape)}")
    check_storage(where, weight=weight)
    weight = weight.detach()
    # NaN is the smallest and the largest wherever it is; two functions in one pass over memory.
    if not weight.is_meta and not torch.stack(torch.aminmax(weight)).isfinite().all():
        index = tuple((~weight.isfinite()).nonzero()[0].tolist())
        raise ValueError(f"{where}: weight must be finite, got {weight[index]} at {index}")
    return weight


def quantize_weight(
    weight: Tensor,
    bits: int = 4,
    group_size: int = 128,
    symmetric: bool = True,
    *,
    scale_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Round a weight to integers, group by group.

    Integers are chosen for the scale as it is stored, after its rounding to ``scale_dtype``.

    Args:
        weight: float16, bfloat16 or float32 ``[N, K]``; meta tensors give meta results.
        bits: 4 or 8.
        group_size: elements of K that share a scale; -1 is all of them. K need not be a multiple.
        symmetric: w = q * scale; otherwise w = (q - zero) * scale with integer zeros in the range
            of q (zero_mode "sub").
        scale_dtype: of the results; the dtype of ``weight`` when None.

    Returns:
        q int8 ``[N, K]``, scales ``[G, N]`` (never 0, NaN or Inf; negative in about half of the
        symmetric groups), zeros ``[G, N]`` or None. An all-zero group has q = zero.

    Raises:
        ValueError: ``bits`` or ``group_size`` is out of range, or the weight is not 2-D, is
            empty, has lost its storage, or holds NaN or Inf.
        TypeError: the weight has another dtype.
    """
    where = "mixed_gemm.quantize_weight"
    check_bits(where, bits)
    weight = checked_dense(where, weight, ("N", "K"))
    check_group_size(where, group_size, weight.shape[1])
    dtype = weight.dtype if scale_dtype is None else scale_dtype
    round_groups = _symmetric if symmetric else _asymmetric

    def rounded(rows: Tensor) -> tuple[Tensor, ...]:
        integers, *of_groups = round_groups(
            groups_of(rows, group_size), integer_weight(bits), dtype
        )
        q = integers.flatten(1)[:, : rows.shape[1]].to(torch.int8)
        return q, *(x.squeeze(-1).to(dtype) for x in of_groups)

    q, scales, *zeros = by_rows(rounded, weight)
    return q, scales.t().contiguous(), zeros[0].t().contiguous() if zeros else None
