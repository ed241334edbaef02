"""The GEMM whose activations are rounded block by block on the way, typed."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import _library
from .autograd import Derivatives, Rule, Saved
from .dense import dense_blocks
from .errors import translates_errors
from .op import Op
from .problem import refuse_non_numbers
from .reasons import ADAPTER, FORCED, ROUNDING

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


def _weight(saved: Saved, dtype: torch.dtype) -> Tensor:
    given = saved.arguments
    return dense_blocks(
        given["b"],
        given["scale_b"],
        given["offset_b"],
        block_size=given["block_size"],
        dtype=dtype,
    )


def _forward(saved: Saved, da: Tensor, dbias: Tensor | None) -> Tensor:
    """Straight through the rounding of a: the op itself would round the tangent."""
    out = da @ _weight(saved, da.dtype)
    return out if dbias is None else out + dbias


def _backward(saved: Saved, grad: Tensor) -> Tensor:
    return grad @ _weight(saved, grad.dtype).t()


OPS = (
    Op(
        "block_quant_gemm",
        "activation(a @ w + bias), w int8 and a rounded to int8 by row and block on the way",
        derivatives=Derivatives(ADAPTER, Rule("a", "bias", _forward, _backward)),
    ),
    Op(
        "_block_quant_gemm_config",
        "the same with a kernel configuration by name",
        derivatives=Derivatives(FORCED),
    ),
    Op(
        "_block_quantize",
        "what its first launch makes of the activations",
        derivatives=Derivatives(ROUNDING),
    ),
)
