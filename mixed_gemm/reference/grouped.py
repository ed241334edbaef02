"""The oracles of the products whose rows belong to experts: those of one weight, expert by expert,
and exactly 0 for the rows of none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from . import floats, gemm
from .arguments import bound_arguments, same_arguments
from .bounds import Oracle

__all__ = [
    "float_oracle",
    "grouped_fpA_fpB_gemm",
    "grouped_fpA_intB_gemm",
    "oracle",
]

_NO_ERROR = 2.0**-1074  # a bound above which any difference is


def grouped_fpA_intB_gemm(
    a: Tensor,
    q: Tensor,
    scales: Tensor,
    offs: Tensor,
    zeros: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    group_size: int = -1,
    zero_mode: str = "sub",
    activation: str = "identity",
) -> Tensor:
    """Compute what ``mixed_gemm.grouped_fpA_intB_gemm`` approximates.

    Args:
        a: ``[M, K]``, rows sorted by expert. q: int8 ``[E, N, K]``. scales: ``[E, G, N]``.
        offs: ``[E]``, where the rows of each expert end: numbers that do not fall, up to M.
        zeros: ``[E, G, N]`` or None. bias: ``[E, N]`` or None.
        group_size, zero_mode, activation: of each, as ``reference.fpA_intB_gemm`` takes them.

    Returns:
        float64 ``[M, N]``.
    """
    options: dict[str, Any] = {
        "group_size": group_size, "zero_mode": zero_mode, "activation": activation,
    }  # fmt: skip
    calls = _by_expert(a, offs, q, scales, zeros, bias)
    return _stacked([gemm.fpA_intB_gemm(*of_one, **options) for of_one in calls], a, q)


def grouped_fpA_fpB_gemm(
    a: Tensor,
    codes: Tensor,
    scales: Tensor,
    offs: Tensor,
    factor: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    weight: str,
    group_size: int = -1,
    activation: str = "identity",
) -> Tensor:
    """Compute what ``mixed_gemm.grouped_fpA_fpB_gemm`` approximates.

    Args:
        a, scales, offs, bias: of :func:`grouped_fpA_intB_gemm`.
        codes: any integer dtype ``[E, N, K]``. factor: ``[E, N]`` or None.
        weight, group_size, activation: of each, as ``reference.floats.fpA_fpB_gemm`` takes them.

    Returns:
        float64 ``[M, N]``.
    """
    options: dict[str, Any] = {
        "weight": weight, "group_size": group_size, "activation": activation,
    }  # fmt: skip
    calls = _by_expert(a, offs, codes, scales, factor, bias)
    return _stacked([floats.fpA_fpB_gemm(*of_one, **options) for of_one in calls], a, codes)


@same_arguments(grouped_fpA_intB_gemm)
def oracle(*operands: Any, **options: Any) -> Oracle:
    """:func:`grouped_fpA_intB_gemm` with the bounds of ``reference.oracle``.

    Args:
        operands, options: as of the function; ``a`` is float16, bfloat16 or float32.
    """
    return _oracle(grouped_fpA_intB_gemm, gemm.oracle, "q", "zeros", *operands, **options)


@same_arguments(grouped_fpA_fpB_gemm)
def float_oracle(*operands: Any, **options: Any) -> Oracle:
    """:func:`grouped_fpA_fpB_gemm` with the bounds of ``reference.floats.oracle``.

    Args:
        operands, options: as of :func:`oracle`.
    """
    return _oracle(grouped_fpA_fpB_gemm, floats.oracle, "codes", "factor", *operands, **options)


def _by_expert(a: Tensor, offs: Tensor, *parts: Tensor | None) -> Iterator[tuple[Any, ...]]:
    """The rows of each expert and its share of ``parts``."""
    begin = 0
    for expert, end in enumerate(offs.tolist()):
        assert begin <= end <= a.shape[0]
        yield a[begin:end], *(None if x is None else x[expert] for x in parts)
        begin = end


def _stacked(of_experts: list[Tensor], a: Tensor, weights: Tensor, rest: float = 0.0) -> Tensor:
    """All rows, ``rest`` behind those of the last expert."""
    rows = sum(x.shape[0] for x in of_experts)
    shape = (a.shape[0] - rows, weights.shape[1])
    behind = torch.full(shape, rest, dtype=torch.float64, device=a.device)
    return torch.cat([*of_experts, behind])


def _oracle(
    product: Callable[..., Tensor],
    of_one: Callable[..., Oracle],
    codes: str,
    third: str,
    *operands: Any,
    **options: Any,
) -> Oracle:
    given = bound_arguments(product, *operands, **options)
    a, weights = given.pop("a"), given.pop(codes)
    parts = (weights, *(given.pop(name) for name in ("scales", third, "bias")))
    found = [of_one(*x, **given) for x in _by_expert(a, given.pop("offs"), *parts)]
    return Oracle(
        _stacked([x.expected for x in found], a, weights),
        _stacked([x.statistical for x in found], a, weights, _NO_ERROR),
        _stacked([x.hard for x in found], a, weights, _NO_ERROR),
    )
