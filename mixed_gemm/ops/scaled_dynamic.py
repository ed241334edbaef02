"""``scaled_mm`` of float activations that are rounded to int8 on the way (dynamic W8A8), typed."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import _library
from .autograd import Derivatives, Rule
from .errors import translates_errors
from .flops import matrix_product
from .op import Op
from .reasons import ROUNDING, SCALES
from .sharding import Along, Rows, Sharding
from .vmap import Batching

__all__ = ["scaled_mm_dynamic"]


@translates_errors("scaled_mm_dynamic")
def scaled_mm_dynamic(
    a: Tensor,
    b: Tensor,
    scale_b: Tensor,
    azp_adj: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """``quantize_per_token`` and ``scaled_mm`` in one call, with the same bits.

    Rounds every row of ``a`` to int8 with a scale of its own, and with a zero point where
    ``azp_adj`` is given, and multiplies as :func:`scaled_mm` and :func:`scaled_mm_azp` do, with
    one rounding to the dtype of ``a``. Differentiable in ``bias``;
    ``mixed_gemm.Linear(scheme='w8a8')`` trains straight through the rounding.

    Args:
        a: float16, bfloat16 or float32 ``[..., K]``, 1-D included; any strides. A row with a NaN
            or an infinity becomes NaN.
        b: int8 ``[K, N]``, column-major (``stride(0) == 1``): ``weight.t()`` of a contiguous
            ``[N, K]`` weight. Any column stride.
        scale_b: float32, one element, or one for each column: ``[N]`` or ``[1, N]``.
        azp_adj: int32 ``[N]`` or ``[1, N]``, the sums of the columns of ``b``
            (:func:`azp_adjustment`), or None for rows without a zero point.
        bias: ``[N]`` in the dtype of ``a``, or None.

    Returns:
        ``[..., N]``, contiguous, in the dtype of ``a``.

    Raises:
        ValueError: a shape, stride, device or storage does not fit; or K > 131071 (the int32 sum
            could wrap).
        TypeError: an argument is no tensor, or of another dtype.
        NotImplementedError: this GPU has no kernel for it.
        torch.OutOfMemoryError: there is no room for the result or the workspace.
        RuntimeError: ``a`` or ``scale_b`` requires grad.
        ImportError: the library did not load.
    """
    _library.require()
    out: Tensor = torch.ops.mixed_gemm.scaled_mm_dynamic(a, b, scale_b, azp_adj, bias)
    return out


OPS = (
    Op(
        "scaled_mm_dynamic",
        "scaled_mm of float activations, whose rows are rounded to int8 on the way",
        derivatives=Derivatives(SCALES, Rule("", "bias"), {"a": ROUNDING}),
        autocast="it rounds from any float type; a cast before would round twice",
        vmap=Batching(("a",), ("bias",)),
        flops=matrix_product("a"),
        sharding=Sharding(
            (
                Rows("rows of a", "a"),
                Along("output channels", {"b": 1, "scale_b": -1, "azp_adj": -1, "bias": 0}, -1),
            ),
            column_major=("b",),
        ),
    ),
)
