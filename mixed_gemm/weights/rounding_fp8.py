"""float8_e4m3fn: rounding of weights to it, and of activations with a given scale, and back, in
torch: the largest magnitude of what shares a scale becomes 448, and what is beyond it after the
division is cut to 448, since casts of older torch make it NaN. ``ops.quantize_fp8`` finds scales of
activations.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..ops.problem import ceil_div
from .rounding import checked_dense, nonzero_scale
from .row_blocks import by_rows, is_plain, row_blocks

FP8 = torch.float8_e4m3fn
FP8_MAX = 448.0  # its largest finite number: 1.75 * 2^8
_VALUES = torch.arange(256, dtype=torch.uint8, device="cpu").view(FP8).float()  # one for each code
MIN_SCALE = 2.0**-126  # the least normal float32, as of ops.quantize_fp8


def quantize_with(x: Tensor, scale: Tensor) -> Tensor:
    """float8_e4m3fn of x / scale, to nearest even and cut to -448..448; NaN stays NaN.

    Args:
        x: float16, bfloat16 or float32 ``[..., K]``.
        scale: float32 that broadcasts with it.
    """
    return (x.float() / scale).clamp(-FP8_MAX, FP8_MAX).to(FP8)


def expanded(scale: Tensor, block: tuple[int, int], n: int, k: int) -> Tensor:
    """The scale of each weight, so that it broadcasts with ``[n, k]``.

    Args:
        scale: ``[ceil(n / rows), ceil(k / columns)]``. block: (rows, columns).
    """
    rows, columns = block
    if scale.shape[1] > 1:
        scale = scale.repeat_interleave(columns, 1)[:, :k]
    if scale.shape[0] > 1 and rows > 1:
        scale = scale.repeat_interleave(rows, 0)[:n]
    return scale


def dequantize_blocks(
    weight: Tensor, scale: Tensor, block: tuple[int, int], dtype: torch.dtype
) -> Tensor:
    """weight * scale ``[N, K]``, computed in float32 and rounded once, to ``dtype``.

    Args:
        weight: float8_e4m3fn ``[N, K]``.
        scale: any float dtype, as of :func:`expanded`. block: (rows, columns).
    """
    blocks = row_blocks(weight, block[0])
    if len(blocks) == 1:  # which a graph has no slices of
        return (to_float(weight) * expanded(scale.float(), block, *weight.shape)).to(dtype)
    found = []
    for rows in blocks:
        own = scale
        if scale.shape[0] > 1:
            own = scale[rows.start // block[0] : ceil_div(rows.stop, block[0])]
        found.append(dequantize_blocks(weight[rows], own, block, dtype))
    return torch.cat(found)


def to_float(x: Tensor) -> Tensor:
    """float8_e4m3fn as float32. A CPU looks numbers up: torch's cast takes 6 ns for a number."""
    if x.device.type != "cpu" or not is_plain(x):
        return x.float()
    at = x.contiguous().view(torch.uint8).flatten().int()
    return _VALUES.index_select(0, at).view(x.shape)


def quantize_weight_fp8(
    weight: Tensor, block: tuple[int, int], *, scale_dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Round a weight to float8_e4m3fn, block by block, for the scales as they are stored.

    Args:
        weight: float16, bfloat16 or float32 ``[N, K]``.
        block: (rows, columns) that share a scale; the last may be fewer.
        scale_dtype: of the scales.

    Returns:
        float8_e4m3fn ``[N, K]``, and scales ``[ceil(N / rows), ceil(K / columns)]``, all of them
        positive; 1 where a block is all zeros.

    Raises:
        ValueError: the weight is not 2-D, is empty, has lost its storage, or holds NaN or Inf.
        TypeError: the weight has another dtype.
    """
    weight = checked_dense("mixed_gemm.quantize_weight_fp8", weight, ("N", "K"))
    height, width = block

    def rounded(rows: Tensor) -> tuple[Tensor, Tensor]:
        (n, k), x = rows.shape, rows.float()
        grid = (ceil_div(n, height), ceil_div(k, width))
        padding = (0, grid[1] * width - k, 0, grid[0] * height - n)
        padded = torch.nn.functional.pad(x.abs(), padding)
        largest = padded.view(grid[0], height, grid[1], width).amax((1, 3))
        scale = nonzero_scale(largest / FP8_MAX, scale_dtype)
        return quantize_with(x, expanded(scale, block, n, k)), scale.to(scale_dtype)

    q, scales = by_rows(rounded, weight, height)
    return q, scales
