"""Derivatives of the products of experts (``grouped``), expert by expert: they read on the host
where the rows of each end, and make the dense weight of one at a time. ``python_ops`` makes ops of
them, since a graph of torch.compile could not hold what the host has read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from .autograd import Saved

_OPS: Any = torch.ops.mixed_gemm


def _spans(offs: Tensor, rows: int) -> Iterator[tuple[int, int, int]]:
    """(expert, first row, row behind the last) of every expert that has rows, of offsets that may
    be any numbers, as csrc/problem/grouped_gemm.h takes them."""
    begin = 0
    for expert, offset in enumerate(offs.tolist()):
        end = min(max(offset, begin), rows)
        if end > begin:
            yield expert, begin, end
        begin = end


def sum_rows(x: Tensor, offs: Tensor) -> Tensor:
    """Sum the rows of each expert: ``[M, N]`` -> ``[E, N]``."""
    sums = x.new_zeros((offs.shape[0], x.shape[1]))
    for expert, begin, end in _spans(offs, x.shape[0]):
        torch.sum(x[begin:end], 0, out=sums[expert])
    return sums


def repeat_rows(x: Tensor, offs: Tensor, *, m: int) -> Tensor:
    """Give every row that of its expert, and 0 to those of none: ``[E, N]`` -> ``[M, N]``."""
    rows = x.new_zeros((m, x.shape[1]))
    for expert, begin, end in _spans(offs, m):
        rows[begin:end] = x[expert]
    return rows


def transposed_product(dequantize: str) -> Callable[..., Tensor]:
    """Multiply rows by the weight of their expert: ``[M, N]`` -> ``[M, K]``."""

    def product(
        x: Tensor, b_packed: Tensor, scales: Tensor, offs: Tensor, more: Tensor | None, *, k: int,
        **options: Any,
    ) -> Tensor:  # fmt: skip
        out = x.new_zeros((x.shape[0], k))
        for expert, begin, end in _spans(offs, x.shape[0]):
            parts = (None if t is None else t[expert] for t in (b_packed, scales, more))
            weight = getattr(_OPS, dequantize)(
                *parts, n=scales.shape[2], k=k, dtype=x.dtype, **options
            )
            torch.mm(x[begin:end], weight, out=out[begin:end])
        return out

    return product


def collected(grad: Tensor, offs: Tensor) -> Tensor:
    """The gradient ``[E, N]`` of what :func:`spread` has added to the rows of each expert."""
    sums: Tensor = _OPS._autograd_sums_by_expert(grad, offs)
    return sums


def spread(x: Tensor, offs: Tensor, m: int) -> Tensor:
    """Give every row that of its expert in ``x`` ``[E, N]``: ``[M, N]``."""
    rows: Tensor = _OPS._autograd_rows_by_expert(x, offs, m=m)
    return rows


def transposed(op: str, saved: Saved, grad: Tensor, names: tuple[str, ...]) -> Tensor:
    """The gradient ``[M, K]`` of the activations of an op.

    Args:
        names: its arguments that make the weights.
    """
    given = {name: saved.arguments[name] for name in ("offs", *names)}
    product = getattr(_OPS, f"_autograd_{op}_transposed")
    out: Tensor = product(grad, **given, k=saved.x_shape[-1])
    return out
