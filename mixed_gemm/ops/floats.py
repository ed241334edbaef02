"""Weights of packed floats: packing, unpacking, dequantizing, and the product, typed.

N is the number of output channels, K of input channels, G = ceil(K / group_size) (1 for -1).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _library
from .autograd import Derivatives, Rule, Saved, through_op
from .errors import translates_errors
from .flops import matrix_product
from .op import Op, of_integers
from .problem import refuse_non_numbers
from .reasons import ADAPTER, NO_PRODUCT, WEIGHTS
from .sharding import Rows, Sharding, channel_blocks
from .vmap import Batching

__all__ = ["dequantize_floats", "fpA_fpB_gemm", "pack_floats", "unpack_floats"]


@translates_errors("pack_floats")
def pack_floats(codes: Tensor, bits: int) -> Tensor:
    """Pack codes of floats into the layout every kernel reads (csrc/layout/weight_layout.h).

    Args:
        codes: int8 ``[N, K]``, values in 0..15; any strides. bits: 4 (e2m1).

    Returns:
        uint8 ``[round_up(N, 64), round_up(K, 64) * bits / 8]``.

    Raises:
        ValueError: ``bits`` is not 4, or ``codes`` is not 2-D.
        TypeError: ``codes`` is not an int8 tensor.
        ImportError: the library did not load.
    """
    _library.require()
    refuse_non_numbers("mixed_gemm::pack_floats", bits=bits)
    packed: Tensor = torch.ops.mixed_gemm.pack_floats(codes, bits)
    return packed


@translates_errors("unpack_floats")
def unpack_floats(b_packed: Tensor, bits: int, n: int, k: int) -> Tensor:
    """The inverse of :func:`pack_floats`.

    Args:
        b_packed: uint8, from there. bits: 4. n, k: of the weight.

    Returns:
        int8 ``[n, k]``, values in 0..15.

    Raises:
        ValueError: ``bits`` is not 4, or ``b_packed`` has another shape.
        TypeError: ``b_packed`` is not a uint8 tensor.
        ImportError: the library did not load.
    """
    _library.require()
    refuse_non_numbers("mixed_gemm::unpack_floats", bits=bits, n=n, k=k)
    codes: Tensor = torch.ops.mixed_gemm.unpack_floats(b_packed, bits, n, k)
    return codes


@translates_errors("dequantize_floats")
def dequantize_floats(
    b_packed: Tensor,
    scales: Tensor,
    *,
    bits: int,
    group_size: int = -1,
    n: int,
    k: int,
    dtype: torch.dtype,
) -> Tensor:
    """The dense weight, rounded once to ``dtype``.

    Args:
        b_packed: uint8, from :func:`pack_floats`. scales: ``[G, n]``. bits: 4.
        group_size: elements of K that share a scale; -1 is all of them.
        n: output channels. k: input channels. dtype: float16, bfloat16 or float32.

    Returns:
        ``[n, k]``, contiguous.

    Raises:
        ValueError: an argument is out of range or does not fit the rest.
        TypeError: an argument is no tensor, or of another dtype.
        ImportError: the library did not load.
    """
    _library.require()
    refuse_non_numbers("mixed_gemm::dequantize_floats", bits=bits, group_size=group_size, n=n, k=k)
    weight: Tensor = torch.ops.mixed_gemm.dequantize_floats(
        b_packed, scales, bits=bits, group_size=group_size, n=n, k=k, dtype=dtype
    )
    return weight


@translates_errors("fpA_fpB_gemm")
def fpA_fpB_gemm(
    a: Tensor,
    b_packed: Tensor,
    scales: Tensor,
    bias: Tensor | None = None,
    pre_scale: Tensor | None = None,
    *,
    bits: int,
    group_size: int = -1,
    activation: str = "identity",
) -> Tensor:
    """activation((a * pre_scale) @ w.T + bias) with w stored in floats of 4 bits.

    Args:
        a: float16, bfloat16 or float32 ``[..., K]``. b_packed: uint8, from :func:`pack_floats`.
        scales: ``[G, N]`` in the dtype of ``a``. bias: ``[N]`` or None. pre_scale: ``[K]`` or None.
        bits: 4. group_size: -1 or a multiple of 16. activation: as of ``fpA_intB_gemm``.

    Returns:
        ``[..., N]``, contiguous, in the dtype of ``a``.

    Raises:
        What ``fpA_intB_gemm`` raises.
    """
    _library.require()
    refuse_non_numbers("mixed_gemm::fpA_fpB_gemm", bits=bits, group_size=group_size)
    out: Tensor = torch.ops.mixed_gemm.fpA_fpB_gemm(
        a, b_packed, scales, bias, pre_scale, bits=bits, group_size=group_size,
        activation=activation,
    )  # fmt: skip
    return out


def gemm_of_weight(options: dict[str, Any], *tensors: Tensor | None) -> Tensor:
    """:func:`fpA_fpB_gemm` as ``PackedWeight.gemm``.

    Args:
        options: of the op. tensors: a, b_packed, scales, zeros (None), bias, pre_scale.
    """
    a, b_packed, scales, _, *others = tensors
    out: Tensor = fpA_fpB_gemm(a, b_packed, scales, *others, **options)  # type: ignore[arg-type]
    return out


def _backward(saved: Saved, grad: Tensor) -> Tensor:
    given = saved.arguments
    weight = torch.ops.mixed_gemm.dequantize_floats(
        given["b_packed"],
        given["scales"],
        bits=given["bits"],
        group_size=given["group_size"],
        n=given["scales"].shape[1],
        k=saved.x_shape[-1],
        dtype=grad.dtype,
    )
    grad_a: Tensor = grad @ weight
    return grad_a if given["pre_scale"] is None else grad_a * given["pre_scale"]


OPS = (
    Op(
        "fpA_fpB_gemm",
        "activation((a * pre_scale) @ w.T + bias), w packed in floats of 4 bits",
        derivatives=Derivatives(ADAPTER, Rule("a", "bias", through_op("a", "bias"), _backward)),
        autocast=True,
        vmap=Batching(("a",), ("bias",)),
        flops=matrix_product("a"),
        sharding=Sharding(
            (Rows("rows of a", "a"), channel_blocks({"scales": 1, "b_packed": 0, "bias": 0}, -1))
        ),
    ),
    of_integers(
        "pack_floats",
        "codes of floats [N, K] in the layout that every kernel reads",
        ("codes",),
        channel_blocks({"codes": 0}, 0),
    ),
    of_integers(
        "unpack_floats",
        "the codes [N, K] of a packed weight of floats",
        ("b_packed",),
        channel_blocks({"n": 0, "b_packed": 0}, 0),
    ),
    Op(
        "dequantize_floats",
        "the dense weight [N, K] of packed floats, rounded once",
        derivatives=Derivatives(WEIGHTS),
        autocast="its dtype is an argument",
        vmap=Batching(looped=("b_packed", "scales")),
        flops=NO_PRODUCT,
        sharding=Sharding((channel_blocks({"n": 0, "b_packed": 0, "scales": 1}, 0),)),
    ),
)
