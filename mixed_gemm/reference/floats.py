"""The oracle of the product with packed floats: its exact result, and how far a correct kernel may
be from it."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .arguments import bound_arguments, same_arguments
from .bounds import Oracle
from .gemm import ACTIVATION_TABLE, BOOKS, VALUES, dequantize, parts_of

__all__ = ["fpA_fpB_gemm", "oracle"]


def fpA_fpB_gemm(
    a: Tensor,
    codes: Tensor,
    scales: Tensor,
    factor: Tensor | None = None,
    bias: Tensor | None = None,
    pre_scale: Tensor | None = None,
    *,
    weight: str,
    group_size: int = -1,
    activation: str = "identity",
) -> Tensor:
    """Compute what ``mixed_gemm.fpA_fpB_gemm`` approximates:
    activation((a * pre_scale) @ w.T + bias), w = value of the code * scale * factor.

    Args:
        a: ``[..., K]``. codes: any integer dtype ``[N, K]``. scales: ``[G, N]``.
        factor: ``[N]`` or None. bias: ``[N]`` or None. pre_scale: ``[K]`` or None.
        weight: a name of ``VALUES``. group_size: elements of K that share a scale; -1 is all.
        activation: a name of ACTIVATION_TABLE.

    Returns:
        float64 ``[..., N]``.
    """
    x = a.double() if pre_scale is None else a.double() * pre_scale.double()
    w = dequantize(codes, scales, group_size=group_size, weight=weight, factor=factor)
    y = x @ w.t()
    return ACTIVATION_TABLE[activation][0](y if bias is None else y + bias.double())


@same_arguments(fpA_fpB_gemm)
def oracle(*operands: Any, **options: Any) -> Oracle:
    """:func:`fpA_fpB_gemm` with the bounds of ``reference.oracle``. Of a weight that the dtype of
    ``a`` has exactly (every code of "e2m1" times a power of two, or times a number of
    float8_e4m3fn) nothing rounds before the sum; the factor multiplies what came before it, and
    rounds once more. A weight of a book rounds twice: its value, and its product with the scale.

    Args:
        operands, options: as in :func:`fpA_fpB_gemm`; ``a`` is float16, bfloat16 or float32.
    """
    given = bound_arguments(fpA_fpB_gemm, *operands, **options)
    activation, codes = given.pop("activation"), given.pop("codes")
    weight = given.pop("weight")
    values = VALUES[weight].to(codes.device)
    q = values.index_select(0, codes.flatten().long() & (len(values) - 1)).view(codes.shape)
    parts = parts_of(
        q=q,
        zeros=None,
        zero_mode="sub",
        is_stored_as_integer=False,
        is_looked_up=weight in BOOKS,
        **given,
    )
    expected = ACTIVATION_TABLE[activation][0](parts.y)
    return Oracle(expected, parts.statistical(activation), parts.hard(activation))
