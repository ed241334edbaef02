"""The way of tokens to the experts of a mixture and back, typed."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from .. import _library
from .autograd import Derivatives, Formulas, Saved
from .errors import translates_errors
from .op import Op
from .problem import refuse_non_numbers
from .reasons import INTEGERS, NO_PRODUCT
from .sharding import Along, Sharding, gathered
from .vmap import Batching

__all__ = ["moe_combine", "moe_permute"]


@translates_errors("moe_permute")
def moe_permute(
    hidden_states: Tensor, topk_ids: Tensor, num_experts: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Sort the choices of tokens by expert, and give every expert the rows of its tokens.

    The rows of one expert are in the order of the tokens, and of the choices of a token. An id
    that is no expert has no effect: its choice gets no row, and as many rows at the end are zeros.
    Nothing waits for a GPU, which cannot refuse an id, and the result is the same in every call.
    Differentiable in ``hidden_states``.

    Args:
        hidden_states: float16, bfloat16 or float32 ``[M, K]``; any strides.
        topk_ids: int32 or int64 ``[M, top_k]``, the experts of each token; fewer than 2^31
            elements. On a CPU, -1..num_experts, where both ends are no expert.
        num_experts: E, 1..2^31 - 1.

    Returns:
        rows ``[M * top_k, K]`` in the dtype of ``hidden_states``; offs int32 ``[E]``, where the
        rows of each expert end, as ``torch._grouped_mm`` takes it; positions int32
        ``[M, top_k]``, the row of each choice, or -1.

    Raises:
        TypeError: an argument is no tensor, or of another dtype.
        ValueError: a shape, device or storage does not fit, ``num_experts`` is out of range, or on
            a CPU an id is.
        RuntimeError: ``topk_ids`` has a tangent.
        ImportError: the library did not load.
    """
    _library.require()
    refuse_non_numbers("mixed_gemm::moe_permute", num_experts=num_experts)
    rows, offs, positions = torch.ops.mixed_gemm.moe_permute(hidden_states, topk_ids, num_experts)
    return rows, offs, positions


@translates_errors("moe_combine")
def moe_combine(rows: Tensor, positions: Tensor, weights: Tensor) -> Tensor:
    """Add up the rows of every token, each times its weight.

    In fp32, a fused multiply and add for each choice in their order, then one rounding, to the
    dtype of ``rows``. A position that is no row adds nothing, whatever its weight is. CPU and CUDA
    give the same bits. Differentiable in ``rows`` and ``weights``.

    Args:
        rows: float16, bfloat16 or float32 ``[R, K]``; any strides.
        positions: int32 ``[M, top_k]``, the row of each choice, from :func:`moe_permute`. On a CPU,
            -1..R - 1, where -1 is none.
        weights: ``[M, top_k]``, float32 or in the dtype of ``rows``.

    Returns:
        ``[M, K]``, contiguous, in the dtype of ``rows``.

    Raises:
        TypeError: an argument is no tensor, or of another dtype.
        ValueError: a shape, device or storage does not fit, or on a CPU a position is out of range.
        ImportError: the library did not load.
    """
    _library.require()
    out: Tensor = torch.ops.mixed_gemm.moe_combine(rows, positions, weights)
    return out


def _tokens_of_rows(saved: Saved, grad: Tensor, name: str) -> Tensor:
    """The sum of the gradients of a token's rows, in the order of its choices."""
    (positions,) = saved.kept
    ones = torch.ones(positions.shape, dtype=torch.float32, device=grad.device)
    out: Tensor = torch.ops.mixed_gemm.moe_combine(grad, positions, ones)
    return out


def _permuted(saved: Saved, tangents: Mapping[str, Tensor]) -> Tensor:
    rows: Tensor = saved.op(**{**saved.arguments, **tangents})[0]
    return rows


def _spread(saved: Saved, grad: Tensor, name: str) -> Tensor:
    """The gradient of the rows, each a token's times its weight, or of the weights, each a product
    of a row and its token's gradient; in fp32, rounded once. Positions of ``moe_permute`` are all
    unlike, so that no two are added to one row, in any order."""
    names = ("rows", "positions", "weights")
    rows, positions, weights = (gathered(saved.arguments[x]) for x in names)
    count = rows.shape[0]
    has_row = (positions >= 0) & (positions < count)
    at = torch.where(has_row, positions, count).flatten()  # all others at one behind the last
    grad = gathered(grad).float().unsqueeze(1)
    if name == "rows":
        terms = (grad * weights.float().unsqueeze(-1)).flatten(0, 1)
        sums = terms.new_zeros(count + 1, rows.shape[1]).index_add(0, at, terms)
        return sums[:count].to(rows.dtype)
    ends = torch.cat((rows, rows.new_zeros(1, rows.shape[1])))
    taken = ends.index_select(0, at).view(*positions.shape, rows.shape[1]).float()
    return torch.where(has_row, (grad * taken).sum(-1), 0.0).to(weights.dtype)


def _of_both(saved: Saved, tangents: Mapping[str, Tensor]) -> Tensor:
    terms = [saved.op(**{**saved.arguments, name: x}) for name, x in tangents.items()]
    out: Tensor = terms[0] if len(terms) == 1 else terms[0] + terms[1]
    return out


_ANY_FLOAT = "it moves and adds rows of any float type in fp32; a cast before would round twice"

OPS = (
    Op(
        "moe_permute",
        "the rows of tokens, sorted by the experts that they chose",
        derivatives=Derivatives(
            INTEGERS,
            Formulas(
                ("hidden_states",),
                _tokens_of_rows,
                _permuted,
                drops=("hidden_states",),
                keeps=(2,),
            ),
        ),
        autocast=_ANY_FLOAT,
        vmap=Batching(looped=("hidden_states", "topk_ids")),
        flops=NO_PRODUCT,
        sharding="where a row goes turns on the tokens of all ranks",
    ),
    Op(
        "moe_combine",
        "the sum of every token's rows, each times its weight",
        derivatives=Derivatives(INTEGERS, Formulas(("rows", "weights"), _spread, _of_both)),
        autocast=_ANY_FLOAT,
        vmap=Batching(looped=("rows", "positions", "weights")),
        flops="a sum of few rows, no product of matrices",
        sharding=Sharding(
            (
                Along("tokens", {"positions": 0, "weights": 0}, 0),
                Along("columns of rows", {"rows": 1}, 1),
            )
        ),
    ),
)
