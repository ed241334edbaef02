"""The GEMM whose activations are rounded block by block on the way, typed."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import _library
from .autograd import Derivatives, Rule, Saved
from .conv_problem import check_block_size
from .errors import (
    check_int8_weight,
    translates_errors,
    wrong_value,
)
from .flops import matrix_product
from .op import Op, for_tests
from .problem import (
    MAX_INT8_K,
    refuse_non_numbers,
)
from .reasons import ADAPTER, FORCED, ROUNDING
from .sharding import Along, Inner, Rows, Sharding
from .vmap import Batching

__all__ = ["block_quant_gemm", "block_sums"]


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
    b_sums: Tensor | None = None,
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
        b_sums: int32 ``[ceil(K / block_size), N]`` from :func:`mixed_gemm.ops.block_sums`, which
            spares each call to sum ``b``; the result is the same to the bit. They are trusted, so
            that sums of another weight give a wrong result.

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
        a, b, scale_b, offset_b, bias, b_sums, block_size=block_size, activation=activation
    )
    return out


def block_sums(b: Tensor, block_size: int) -> Tensor:
    """``b_sums`` of :func:`block_quant_gemm` for a weight, computed once.

    Args:
        b: int8 ``[K, N]``, any strides.
        block_size: as of :func:`block_quant_gemm`.

    Returns:
        int32 ``[ceil(K / block_size), N]``, the sums over each block of K.

    Raises:
        ValueError: ``block_size`` is out of range, or ``b`` is not 2-D or its storage was freed.
        TypeError: ``b`` is not int8.
    """
    where = "mixed_gemm.ops.block_sums"
    check_int8_weight(where, "b", b, 2, "[K, N]")
    refuse_non_numbers(where, block_size=block_size)
    k, n = b.shape
    _check_blocks(where, block_size, k)
    if k == 0:
        return b.new_zeros((0, n), dtype=torch.int32)
    size = k if block_size == -1 else block_size
    whole = k - k % size
    sums = b[:whole].reshape(whole // size, size, n).sum(1, dtype=torch.int32)
    if whole == k:
        return sums
    return torch.cat([sums, b[whole:].sum(0, keepdim=True, dtype=torch.int32)])


def _check_blocks(op: str, block_size: int, k: int) -> None:
    check_block_size(op, block_size, k, "K")
    if (k if block_size == -1 else block_size) > MAX_INT8_K:
        wrong_value(
            op,
            "a block",
            f"have at most {MAX_INT8_K} elements, so that its int32 sum of products of -128 cannot "
            "wrap",
            f"block_size={block_size}, K={k}",
        )


def _weight(saved: Saved, dtype: torch.dtype) -> Tensor:
    """The dense weight [K, N]; fp32, then rounded to ``dtype``."""
    b, block_size = saved.arguments["b"], saved.arguments["block_size"]
    k = b.shape[0]
    block = max(k, 1) if block_size == -1 else block_size
    scale, offset = (
        saved.arguments[name].float().repeat_interleave(block, dim=0)[:k]
        for name in ("scale_b", "offset_b")
    )
    weight: Tensor = (b.float() * scale + offset).to(dtype)
    return weight


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
        autocast=True,
        vmap=Batching(("a",), ("bias",)),
        flops=matrix_product("a"),
        sharding=Sharding(
            (
                Rows("rows of a", "a"),
                Along(
                    "output channels",
                    {"b": 1, "scale_b": 1, "offset_b": 1, "bias": 0, "b_sums": 1},
                    -1,
                ),
                Inner(
                    "blocks of K without bias",
                    {"a": -1, "b": 0, "scale_b": 0, "offset_b": 0, "b_sums": 0},
                    groups="scale_b",
                    size="block_size",
                ),
            ),
            column_major=("b",),
        ),
    ),
    for_tests("_block_quant_gemm_config", "the same with a kernel configuration by name", FORCED),
    for_tests("_block_quantize", "what its first launch makes of the activations", ROUNDING),
)
