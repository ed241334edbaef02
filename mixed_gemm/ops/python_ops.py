"""Ops whose kernels are in Python: the halves of other ops that torch traces as one call each
(``by_expert``). No contract has them, so that schemas and fake kernels stand here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from . import by_expert
from .autograd import Derivatives, Rule, Saved, through_op
from .flops import Flops, matrix_product
from .op import Op
from .problem import PAD_N
from .reasons import NO_PRODUCT, WEIGHTS
from .sharding import Along, Inner, Sharding
from .vmap import Batching


def _product(op: str) -> Callable[[Saved, Tensor], Tensor]:
    """The transpose of the transposed product, which is the op without a bias."""

    def backward(saved: Saved, grad: Tensor) -> Tensor:
        given = {name: x for name, x in saved.arguments.items() if name not in ("x", "k")}
        out: Tensor = getattr(torch.ops.mixed_gemm, op)(grad, **given)
        return out

    return backward


@dataclass(frozen=True)
class Part:
    """One op: its schema behind the name, its kernel, its fake kernel, and its record."""

    schema: str
    kernel: Callable[..., Tensor]
    fake: Callable[..., Tensor]
    op: Op


def _part(
    name: str,
    schema: str,
    kernel: Callable[..., Tensor],
    fake: Callable[..., Tensor],
    backward: Callable[[Saved, Tensor], Tensor],
    flops: Flops | str,
    sharding: Along | Inner,
) -> Part:
    rule = Rule("x", "", through_op("x"), backward)
    record = Op(
        f"_autograd_{name}", kernel.__doc__ or name, Derivatives(WEIGHTS, rule),
        "a derivative has the dtype of its call", Batching(looped=("x",)), flops,
        Sharding((sharding,)),
    )  # fmt: skip
    return Part(schema, kernel, fake, record)


def _transposed_part(op: str, dequantize: str, more: str, options: str) -> Part:
    return _part(
        f"{op}_transposed",
        f"(Tensor x, Tensor b_packed, Tensor scales, Tensor offs, Tensor? {more}, *, {options}, "
        "SymInt k) -> Tensor",
        by_expert.transposed_product(dequantize),
        lambda x, *rest, k, **options: x.new_empty((x.shape[0], k)),
        _product(op),
        matrix_product("x"),
        Inner(
            "output channels", {"scales": 2, "b_packed": 1, more: 2 if more == "zeros" else 1,
            "x": 1}, without=(), unit=PAD_N,
        ),
    )  # fmt: skip


PARTS = (
    _transposed_part(
        "grouped_fpA_intB_gemm",
        "dequantize_weights",
        "zeros",
        "int bits, int group_size, str zero_mode",
    ),
    _transposed_part(
        "grouped_fpA_fpB_gemm", "dequantize_codes", "factor", "str weight, int group_size"
    ),
    _part(
        "sums_by_expert",
        "(Tensor x, Tensor offs) -> Tensor",
        by_expert.sum_rows,
        lambda x, offs: x.new_empty((offs.shape[0], x.shape[1])),
        lambda saved, grad: by_expert.spread(grad, saved.arguments["offs"], saved.x_shape[0]),
        NO_PRODUCT,
        Along("columns", {"x": 1}, 1),
    ),
    _part(
        "rows_by_expert",
        "(Tensor x, Tensor offs, *, SymInt m) -> Tensor",
        by_expert.repeat_rows,
        lambda x, offs, *, m: x.new_empty((m, x.shape[1])),
        lambda saved, grad: by_expert.collected(grad, saved.arguments["offs"]),
        NO_PRODUCT,
        Along("columns", {"x": 1}, 1),
    ),
)

# Definitions last as long as this object.
_DEFINED = torch.library.Library("mixed_gemm", "FRAGMENT")  # type: ignore[no-untyped-call]


def define() -> None:
    """Define the ops with their kernels, for every device."""
    for part in PARTS:
        _DEFINED.define(part.op.name + part.schema)  # type: ignore[no-untyped-call]
        _DEFINED.impl(part.op.name, part.kernel, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
        torch.library.register_fake(f"mixed_gemm::{part.op.name}", part.fake)
