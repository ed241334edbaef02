"""The results of the ops around the experts of a mixture, in plain torch: bit for bit those of the
two that sort and add rows, and in float64 the gated activation, with the bound of its kernels."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .bounds import ROUNDING
from .examples import Draw, Example
from .gemm import ACTIVATION_TABLE


def moe_permute(
    hidden_states: Tensor, topk_ids: Tensor, num_experts: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute ``mixed_gemm.moe_permute`` bit for bit.

    Args:
        hidden_states: ``[M, K]``. topk_ids: ``[M, top_k]``; any number that is no expert is none.
    """
    tokens, choices = topk_ids.shape
    ids = topk_ids.flatten().long()
    ids = torch.where((ids >= 0) & (ids < num_experts), ids, num_experts)
    order = ids.argsort(stable=True)
    count = int((ids < num_experts).sum())
    rows = hidden_states.new_zeros(len(ids), hidden_states.shape[1])
    rows[:count] = hidden_states[order[:count] // max(choices, 1)]
    ends = torch.bincount(ids, minlength=num_experts + 1)[:num_experts].cumsum(0)
    positions = torch.full_like(ids, -1)
    positions[order[:count]] = torch.arange(count, device=ids.device)
    return rows, ends.int(), positions.view(tokens, choices).int()


def fused_multiply_add(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """x * y + z of float32 tensors, rounded once: the product is exact in float64, and the sum is
    rounded to odd there (Boldo and Melquiond 2008), so that rounding to float32 is the only one
    that counts."""
    product, z = x.double() * y.double(), z.double()
    total = product + z
    part = total - product
    lost = (product - (total - part)) + (z - part)
    wrong = total.isfinite() & (lost != 0) & (total.view(torch.int64) & 1 == 0)
    odd = torch.nextafter(total, lost.sign() * math.inf)
    return torch.where(wrong, odd, total).float()


def moe_combine(rows: Tensor, positions: Tensor, weights: Tensor) -> Tensor:
    """Compute ``mixed_gemm.moe_combine`` bit for bit but for the sign of NaN.

    Args:
        rows: ``[R, K]``. positions, weights: ``[M, top_k]``; any number that is no row is none.
    """
    total = torch.zeros(len(positions), rows.shape[1], device=rows.device)
    has_row = (positions >= 0) & (positions < len(rows))
    for j in range(positions.shape[1]):
        here = has_row[:, j].nonzero().flatten()
        taken = rows[positions[here, j].long()].float()
        total[here] = fused_multiply_add(taken, weights[here, j, None].float(), total[here])
    return total.to(rows.dtype)


def gated_activation(
    gate_up: Tensor, *, activation: str = "silu", limit: float | None = None, alpha: float = 1.0
) -> Tensor:
    """Compute what ``mixed_gemm.gated_activation`` approximates, in float64 ``[..., I]``."""
    most = math.inf if limit is None else limit
    gate, up = gate_up.double().chunk(2, -1)
    gate, up = gate.clamp(max=most), up.clamp(-most, most)
    if activation == "swiglu_oai":
        return gate * torch.sigmoid(alpha * gate) * (up + 1)
    return ACTIVATION_TABLE[activation][0](gate) * up


def gated_error_bound(
    gate_up: Tensor, *, activation: str = "silu", limit: float | None = None, alpha: float = 1.0
) -> Tensor:
    """How far a kernel of ``gated_activation`` may be from it, float64 ``[..., I]``.

    With y the result, g and x gate and up (x one more in swiglu_oai), u and eta of the dtype::

        E     = 8 * e * |g * x| + tiny                  e = 2^-23
        bound = E + u * (|y| + E) + eta

    The activation is g times a number in 0..1 that comes of a few operations and one function of
    some units in the last place, each relative to the numbers that it takes; an exponential has
    also the rounding of its argument, which counts |alpha * g| times but where the activation is
    as small: |g| * exp(-|g|) is below 1. tiny stands for results below the normal numbers.
    """
    u, eta = ROUNDING[gate_up.dtype]
    y = gated_activation(gate_up, activation=activation, limit=limit, alpha=alpha).abs()
    most = math.inf if limit is None else limit
    gate, up = gate_up.double().chunk(2, -1)
    gate, up = gate.clamp(max=most), up.clamp(-most, most) + (activation == "swiglu_oai")
    error = 8 * 2.0**-23 * (gate * up).abs() + 2.0**-126 * (1 + up.abs())
    return error + u * (y + error) + eta


def _permute(draw: Draw) -> tuple[dict[str, Any], Any]:
    hidden, ids = draw.normal(16, 64), draw.integers(4, 16, 4, dtype=torch.int32).clamp(min=-1)
    given: dict[str, Any] = {"hidden_states": hidden, "topk_ids": ids, "num_experts": 7}
    return given, moe_permute(**given)


def _combine(draw: Draw) -> tuple[dict[str, Any], Any]:
    positions = draw.integers(6, 16, 4, dtype=torch.int32).clamp(min=-1)
    weights = draw.normal(16, 4, dtype=torch.float32)
    given = {"rows": draw.normal(32, 64), "positions": positions, "weights": weights}
    return given, moe_combine(**given)


EXAMPLES: dict[str, Example] = {"moe_permute": _permute, "moe_combine": _combine}
