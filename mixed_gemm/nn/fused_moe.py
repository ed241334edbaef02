"""``fused_moe``: the experts of a mixture on the tokens that chose them, without a word from the
host, so that a CUDA graph of it is right for every routing.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..ops.errors import dtype_name, shape_text, wrong_value
from ..ops.gated import gated_activation
from ..ops.moe import moe_combine, moe_permute
from ..weights.stacked import StackedWeight

_OP = "mixed_gemm.fused_moe"


def fused_moe(
    hidden_states: Tensor,
    w13: StackedWeight,
    w2: StackedWeight,
    topk_weights: Tensor,
    topk_ids: Tensor,
    *,
    activation: str = "silu",
    limit: float | None = None,
    alpha: float = 1.0,
    expert_map: Tensor | None = None,
    apply_router_weight_on_input: bool = False,
) -> Tensor:
    """The sum of the results of each token's experts, times the router's weights.

    The result of an expert is ``gated_activation(x @ w13.T) @ w2.T``, each product with its bias.
    The rows of tokens are sorted by expert, the results of a token are added up in the order of its
    choices in fp32, and nothing waits for the GPU. Differentiable in ``hidden_states``,
    ``topk_weights`` and the biases; the backward pass reads on the host how many rows each expert
    has.

    Args:
        hidden_states: float16 or bfloat16 ``[T, K]``; on a CPU float32, too.
        w13: gate and up of E experts, ``[2 * I, K]`` each, the rows of gate first.
        w2: ``[K, I]`` each.
        topk_weights: ``[T, top_k]``, float32 or in the dtype of ``hidden_states``.
        topk_ids: int32 or int64 ``[T, top_k]``. Ids that are no expert add nothing; on a CPU others
            than -1 and E are refused.
        activation, limit, alpha: of ``gated_activation``: silu, gelu, gelu_tanh, relu, or
            swiglu_oai for gpt-oss.
        expert_map: int32 or int64 ``[experts of the model]``: which of these E experts each is, -1
            for those of other ranks. ``topk_ids`` are numbers of the model's experts then, of which
            others add nothing.
        apply_router_weight_on_input: whether the router's weight multiplies the input of an expert
            in place of its result (Llama 4), for a ``top_k`` of 1.

    Returns:
        ``[T, K]`` in the dtype of ``hidden_states``.

    Raises:
        ValueError, TypeError: what the ops refuse; weights of different numbers of experts, a
            router's weight on the input of several experts, and an ``expert_map`` that is none.
        NotImplementedError: this GPU has no kernel for it.
    """
    if w2.count != w13.count:
        wrong_value(_OP, "w2", f"have {w13.count} experts as w13", f"{w2.count}")
    if expert_map is not None:
        topk_ids = _mapped(topk_ids, expert_map)
    if apply_router_weight_on_input:
        if topk_ids.shape[-1] != 1:
            wrong_value(
                _OP,
                "topk_ids",
                "have one choice where the router's weight multiplies the input",
                f"{topk_ids.shape[-1]} choices",
            )
        hidden_states = (hidden_states * topk_weights).to(hidden_states.dtype)
        topk_weights = topk_weights.new_ones(topk_weights.shape)

    def gate(x: Tensor) -> Tensor:
        return gated_activation(x, activation=activation, limit=limit, alpha=alpha)

    return routed(hidden_states, w13, gate, w2, topk_weights, topk_ids)


def _mapped(ids: Tensor, expert_map: Tensor) -> Tensor:
    """Numbers of a model's experts as those of this rank, -1 for others."""
    count = expert_map.shape[0] if expert_map.dim() == 1 else 0
    if count == 0 or expert_map.dtype not in (torch.int32, torch.int64):
        given = f"{dtype_name(expert_map.dtype)} {shape_text(expert_map.shape)}"
        wrong_value(_OP, "expert_map", "be int32 or int64 [experts of the model]", given)
    mapped = expert_map[ids.clamp(0, count - 1)]
    return torch.where((ids >= 0) & (ids < count), mapped, -1)


def routed(
    x: Tensor,
    first: StackedWeight,
    between: Callable[[Tensor], Tensor],
    second: StackedWeight,
    weights: Tensor,
    ids: Tensor,
    after: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Experts of any form between routing and the sum.

    Args:
        x: ``[T, K]``. first, second: weights of E experts. weights, ids: ``[T, top_k]``.
        between: rows of the first product -> rows that the second takes. after: of its results.
    """
    rows, offs, positions = moe_permute(x, ids, first.count)
    out = second.product(between(first.product(rows, offs)), offs)
    return moe_combine(out if after is None else after(out), positions, weights)
