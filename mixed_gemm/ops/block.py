"""The GEMM whose activations are rounded block by block on the way, typed."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import _library
from .errors import translates_errors
from .problem import refuse_non_numbers

__all__ = ["block_quant_gemm"]


@translates_errors("block_quant_gemm")
def block_quant_gemm(
    a: Tensor,
    b: Tensor,
    scale_b: Tensor,
    offset_b: Tensor,
    bias: Tensor | None = None,
    *,
    block_size: int,
    activation: str = "identity",
) -> Tensor:
    """activation(a @ w + bias) with int8 w and with a rounded to int8 on line, per row and block.

    w[k, n] = b[k, n] * scale_b[i, n] + offset_b[i, n] in block i = k // block_size. Every row of
    ``a`` is rounded block by block to 256 steps between its smallest and largest value there, so
    the result differs from that of ``a`` itself by up to half a step of each element. Integer
    products are exact; blocks are added in fp32; one rounding, to the dtype of ``a``.
    Differentiable in ``a`` (straight through the rounding) and ``bias``.

    Args:
        a: float16, bfloat16 or float32 ``[..., K]``, 1-D included; any strides.
        b: int8 ``[K, N]``, column-major (``stride(0) == 1``): ``weight.t()`` of a contiguous
            ``[N, K]`` weight. Any column stride.
        scale_b: ``[ceil(K / block_size), N]`` in the dtype of ``a``.
        offset_b: the same. Zeros for a symmetric weight.
        bias: ``[N]`` in the dtype of ``a``, or None.
        block_size: -1 (one block) or a multiple of 16 that is at most K; the last block may be
            ragged.
        activation: identity, relu, relu6, gelu, gelu_tanh or silu.

    Returns:
        ``[..., N]``, contiguous, in the dtype of ``a``. A row with a NaN or an infinity is NaN.

    Raises:
        ValueError: ``block_size`` or ``activation`` is out of range, or a shape, stride, device or
            storage does not fit.
        TypeError: an argument is no tensor, or of another dtype.
        NotImplementedError, torch.OutOfMemoryError: as in :func:`qconv2d`.
        RuntimeError: a quantized weight requires grad.
        ImportError: the library did not load.
    """
    _library.require()
    refuse_non_numbers("mixed_gemm::block_quant_gemm", block_size=block_size)
    out: Tensor = torch.ops.mixed_gemm.block_quant_gemm(
        a, b, scale_b, offset_b, bias, block_size=block_size, activation=activation
    )
    return out
