"""Rounding of activations to int8 or float8, which goes before ``scaled_mm``, typed."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import _library
from .autograd import Derivatives
from .errors import translates_errors
from .op import Op
from .reasons import NO_PRODUCT, ROUNDING, ROUNDING_FP8
from .sharding import Rows, Sharding
from .vmap import Batching

__all__ = ["quantize_fp8", "quantize_per_tensor", "quantize_per_token"]


@translates_errors("quantize_per_token")
def quantize_per_token(
    a: Tensor, *, symmetric: bool = True
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Round every row to int8 with a scale of its own, in one pass.

    In fp32, with 1 / scale rounded once, then q = clamp(round(a * (1 / scale)) + azp), to nearest
    even. Symmetric: scale = max|a| / 127 and q in -127..127. Otherwise scale = (max a - min a) /
    255, of the row's own range, which need not hold 0, and azp = -128 - round(min a / scale),
    which need not be an int8; q in -128..127. That scale is at least max|a| / 2^21, so that azp
    stays below 2^22: a row in 10000..10000.001 gets larger steps, and a constant row comes back
    exactly. Every element is within 0.5001 * scale + 2^-23 * max|a| of scale * (q - azp), the
    latter for the roundings in fp32. A scale is at least 2^-126, which is what a row of zeros has.
    A row with a NaN has scale NaN, with an infinity scale infinity; its q is 0, and a product with
    it is NaN. CPU and CUDA give the same bits.

    Args:
        a: float16, bfloat16 or float32 ``[..., K]``; any strides.
        symmetric: no zero points.

    Returns:
        q int8 ``[..., K]``, scale float32 ``[..., 1]``, azp int32 ``[..., 1]`` in
        -(2^21 + 128)..2^21 - 128 or None when symmetric; a is about scale * (q - azp).

    Raises:
        TypeError: ``a`` is no tensor, or of another dtype.
        ValueError: ``a`` is 0-d, or its storage was freed.
        RuntimeError: ``a`` requires grad.
        ImportError: the library did not load.
    """
    _library.require()
    q, scale, azp = torch.ops.mixed_gemm.quantize_per_token(a, symmetric=symmetric)
    return q, scale, azp


@translates_errors("quantize_per_tensor")
def quantize_per_tensor(a: Tensor, scale: Tensor, azp: Tensor | None = None) -> Tensor:
    """Round to int8 with a given scale: q = clamp(round(a * (1 / scale)) + azp, -128, 127).

    Infinities saturate, a NaN counts as 0.

    Args:
        a: float16, bfloat16 or float32 ``[..., K]``; any strides.
        scale: float32, one element, positive and finite. It is not read back to check that.
        azp: int32, one element, or None. Beyond +-2^22 it counts as that.

    Returns:
        int8, shaped as ``a``.

    Raises:
        TypeError: an argument is no tensor, or of another dtype.
        ValueError: a shape, device or storage does not fit.
        RuntimeError: ``a`` requires grad.
        ImportError: the library did not load.
    """
    _library.require()
    q: Tensor = torch.ops.mixed_gemm.quantize_per_tensor(a, scale, azp)
    return q


@translates_errors("quantize_fp8")
def quantize_fp8(a: Tensor, *, block_size: int | None = None) -> tuple[Tensor, Tensor]:
    """Round every row, or every block of it, to float8_e4m3fn with a scale of its own, in one pass.

    In fp32: scale = max|a| / 448, at least 2^-126, and q = a / scale to nearest even, cut to
    -448..448. NaN stays NaN and the sign of a zero is kept, as in torch's cast. What shares a scale
    with a NaN is NaN; with an infinity, the scale is infinity, and q 0, or NaN for an infinity: a
    product with either is NaN. CPU and CUDA give the same numbers.

    Args:
        a: float16, bfloat16 or float32 ``[..., K]``; any strides.
        block_size: elements of K that share a scale, the last of them may be fewer; None is all.

    Returns:
        q float8_e4m3fn ``[..., K]`` and scale float32 ``[..., 1]``, or ``[..., ceil(K /
        block_size)]``: as :func:`scaled_mm` takes them; a is about scale * q.

    Raises:
        TypeError: ``a`` is no tensor, or of another dtype.
        ValueError: ``a`` is 0-d, its storage was freed, or ``block_size`` is below 1.
        RuntimeError: ``a`` requires grad.
        ImportError: the library did not load.
    """
    _library.require()
    q, scale = torch.ops.mixed_gemm.quantize_fp8(a, block_size=block_size)
    return q, scale


_ANY_FLOAT = "it rounds from any float type; a cast before would round twice"

OPS = (
    Op(
        "quantize_per_token",
        "int8 rows with a scale each, and zero points where asked for",
        derivatives=Derivatives(ROUNDING),
        autocast=_ANY_FLOAT,
        vmap=Batching(("a",)),
        flops=NO_PRODUCT,
        sharding=Sharding((Rows("rows of a", "a"),)),
    ),
    Op(
        "quantize_per_tensor",
        "int8 with one given scale",
        derivatives=Derivatives(ROUNDING),
        autocast=_ANY_FLOAT,
        vmap=Batching(("a",), ("scale", "azp")),
        flops=NO_PRODUCT,
        sharding=Sharding((Rows("elements of a", "a", whole=0),)),
    ),
    Op(
        "quantize_fp8",
        "float8_e4m3fn rows, or blocks of them, with a scale each",
        derivatives=Derivatives(ROUNDING_FP8),
        autocast=_ANY_FLOAT,
        vmap=Batching(("a",)),
        flops=NO_PRODUCT,
        sharding=Sharding((Rows("rows of a", "a"),)),
    ),
)
