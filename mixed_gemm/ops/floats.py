"""Weights of packed floats: packing, unpacking, dequantizing, and the product, typed.

N is the number of output channels, K of input channels, G = ceil(K / group_size) (1 for -1). A
weight is named by the type of its codes: "e2m1" (4 bits: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their
negatives; MXFP4, NVFP4), "e4m3" (8 bits, float8_e4m3fn), "nf4" or "fp4" (code books of 16 values).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _library
from .autocast import AllBut
from .autograd import Derivatives, Rule, Saved, through_op
from .errors import translates_errors
from .flops import matrix_product
from .op import Op, of_integers
from .problem import refuse_non_numbers
from .reasons import ADAPTER, FORCED, NO_PRODUCT, WEIGHTS
from .sharding import Rows, Sharding, channel_blocks
from .vmap import Batching

__all__ = ["dequantize_codes", "fpA_fpB_gemm", "pack_codes", "unpack_codes"]


@translates_errors("pack_codes")
def pack_codes(codes: Tensor, weight: str) -> Tensor:
    """Pack codes of floats into the layout every kernel reads (csrc/layout/weight_layout.h).

    Args:
        codes: int8 ``[N, K]``, any strides: 0..15 of 4 bits, where a CPU looks at them and a GPU
            takes the low four bits; the bits of float8_e4m3fn of "e4m3".
        weight: "e2m1", "e4m3", "nf4" or "fp4".

    Returns:
        uint8 ``[round_up(N, 64), round_up(K, 64) * bits / 8]``.

    Raises:
        ValueError: ``weight`` is no such name, ``codes`` is not 2-D, or one is out of range.
        TypeError: ``codes`` is not an int8 tensor.
        ImportError: the library did not load.
    """
    _library.require()
    packed: Tensor = torch.ops.mixed_gemm.pack_codes(codes, weight)
    return packed


@translates_errors("unpack_codes")
def unpack_codes(b_packed: Tensor, weight: str, n: int, k: int) -> Tensor:
    """The inverse of :func:`pack_codes`.

    Args:
        b_packed: uint8, from there. weight: as there. n, k: of the weight.

    Returns:
        int8 ``[n, k]``.

    Raises:
        ValueError: ``weight`` is no such name, or ``b_packed`` has another shape.
        TypeError: ``b_packed`` is not a uint8 tensor.
        ImportError: the library did not load.
    """
    _library.require()
    refuse_non_numbers("mixed_gemm::unpack_codes", n=n, k=k)
    codes: Tensor = torch.ops.mixed_gemm.unpack_codes(b_packed, weight, n, k)
    return codes


@translates_errors("dequantize_codes")
def dequantize_codes(
    b_packed: Tensor,
    scales: Tensor,
    factor: Tensor | None = None,
    *,
    weight: str,
    group_size: int,
    n: int,
    k: int,
    dtype: torch.dtype,
) -> Tensor:
    """The dense weight, code * scale * factor, rounded once to ``dtype``.

    Args:
        b_packed: uint8, from :func:`pack_codes`. scales: float16, bfloat16 or float32 ``[G, n]``.
        factor: float32 ``[n]``, or None for ones. weight: as of :func:`pack_codes`.
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
    refuse_non_numbers("mixed_gemm::dequantize_codes", group_size=group_size, n=n, k=k)
    dense: Tensor = torch.ops.mixed_gemm.dequantize_codes(
        b_packed, scales, factor, weight=weight, group_size=group_size, n=n, k=k, dtype=dtype
    )
    return dense


@translates_errors("fpA_fpB_gemm")
def fpA_fpB_gemm(
    a: Tensor,
    b_packed: Tensor,
    scales: Tensor,
    factor: Tensor | None = None,
    bias: Tensor | None = None,
    pre_scale: Tensor | None = None,
    *,
    weight: str,
    group_size: int,
    activation: str = "identity",
) -> Tensor:
    """activation((a * pre_scale) @ w.T + bias), w[n, k] = code[n, k] * scale[k / group_size, n] *
    factor[n], with codes of 4 or 8 bits.

    Sums are fp32, the factor multiplies them behind all groups, and the result is rounded once, to
    the dtype of ``a``. Differentiable in ``a`` and ``bias``, backward and forward; vmap runs over
    ``a``, or over ``bias`` one element at a time.

    Scales must be below 4 in magnitude: kernels of GPUs multiply them by 2^14 ("e2m1") in float16
    and by 2^126 in bfloat16, to make numbers of codes, and larger ones become infinite there. What
    is larger goes into ``factor``: MXFP4 and NVFP4 are exact with the largest scale of each
    column in [1, 2), as ``mixed_gemm.weights.FloatWeight`` stores them.

    Args:
        a: float16, bfloat16 or float32 ``[..., K]``. b_packed: uint8, from :func:`pack_codes`.
        scales: ``[G, N]`` in the dtype of ``a``. Values are not looked at, as of
            :func:`fpA_intB_gemm`.
        factor: float32 ``[N]``, or None for ones.
        bias: ``[N]`` in the dtype of ``a``, or None. pre_scale: ``[K]`` likewise, or None.
        weight: as of :func:`pack_codes`.
        group_size: elements of K that share a scale: -1 (all) or a multiple of 16 that is at most
            K; the last group may be ragged.
        activation: as of :func:`fpA_intB_gemm`.

    Returns:
        ``[..., N]``, contiguous, in the dtype of ``a``.

    Raises:
        What :func:`fpA_intB_gemm` raises.
    """
    _library.require()
    refuse_non_numbers("mixed_gemm::fpA_fpB_gemm", group_size=group_size)
    out: Tensor = torch.ops.mixed_gemm.fpA_fpB_gemm(
        a, b_packed, scales, factor, bias, pre_scale, weight=weight, group_size=group_size,
        activation=activation,
    )  # fmt: skip
    return out


def gemm_of_weight(options: dict[str, Any], *tensors: Tensor | None) -> Tensor:
    """:func:`fpA_fpB_gemm` as ``PackedWeight.gemm``.

    Args:
        options: of the op. tensors: those of the op, in its order: a ``[..., K]``, ...
    """
    out: Tensor = fpA_fpB_gemm(*tensors, **options)  # type: ignore[arg-type]
    return out


def _backward(saved: Saved, grad: Tensor) -> Tensor:
    given = saved.arguments
    weight = torch.ops.mixed_gemm.dequantize_codes(
        given["b_packed"],
        given["scales"],
        given["factor"],
        weight=given["weight"],
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
        "activation((a * pre_scale) @ w.T + bias), w packed in floats of 4 or 8 bits",
        derivatives=Derivatives(ADAPTER, Rule("a", "bias", through_op("a", "bias"), _backward)),
        autocast=AllBut(("factor",)),
        vmap=Batching(("a",), ("bias",)),
        flops=matrix_product("a"),
        sharding=Sharding(
            (
                Rows("rows of a", "a"),
                channel_blocks({"scales": 1, "b_packed": 0, "factor": 0, "bias": 0}, -1),
            )
        ),
    ),
    Op(
        "fpA_fpB_gemm_config",
        "the same with a kernel configuration by name, for tests and benchmarks",
        derivatives=Derivatives(
            FORCED, whys={x: WEIGHTS for x in ("scales", "factor", "pre_scale")}
        ),
        autocast=AllBut(("factor",)),
        vmap=Batching(("a",), ("bias",)),
        flops=matrix_product("a"),
        sharding="a configuration is forced for the shape of one device",
    ),
    of_integers(
        "pack_codes",
        "codes of floats [N, K] in the layout that every kernel reads",
        ("codes",),
        channel_blocks({"codes": 0}, 0),
    ),
    of_integers(
        "unpack_codes",
        "the codes [N, K] of a packed weight of floats",
        ("b_packed",),
        channel_blocks({"n": 0, "b_packed": 0}, 0),
    ),
    Op(
        "dequantize_codes",
        "the dense weight [N, K] of packed floats, rounded once",
        derivatives=Derivatives(WEIGHTS),
        autocast="its dtype is an argument",
        vmap=Batching(looped=("b_packed", "scales", "factor")),
        flops=NO_PRODUCT,
        sharding=Sharding((channel_blocks({"n": 0, "b_packed": 0, "scales": 1, "factor": 0}, 0),)),
    ),
)
