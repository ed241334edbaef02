"""The GEMMs whose rows belong to experts, each with a packed weight of its own, typed.

M is the number of rows, E of experts, N of output channels, K of input channels,
G = ceil(K / group_size) (1 for -1). Rows are sorted by expert. ``offs`` says where those of each
end, as that of ``torch._grouped_mm`` does: expert e has rows offs[e - 1] to offs[e] - 1, and the
first begins at row 0. Rows from offs[-1] on belong to none, and what comes out for them is 0.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _library
from . import by_expert
from .autocast import AllBut
from .autograd import Derivatives, Rule, through_op
from .errors import translates_errors
from .flops import matrix_product
from .op import Op
from .problem import refuse_non_numbers
from .reasons import ADAPTER, FORCED, WEIGHTS
from .sharding import Sharding, channel_blocks
from .vmap import Batching

__all__ = ["grouped_fpA_fpB_gemm", "grouped_fpA_intB_gemm"]


@translates_errors("grouped_fpA_intB_gemm")
def grouped_fpA_intB_gemm(
    a: Tensor,
    b_packed: Tensor,
    scales: Tensor,
    offs: Tensor,
    zeros: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    bits: int,
    group_size: int = -1,
    zero_mode: str = "sub",
    activation: str = "identity",
) -> Tensor:
    """activation(a @ w[e].T + bias[e]) of the rows of each expert e, with w stored in 4 or 8 bits.

    Each row has the numbers of :func:`fpA_intB_gemm` within its bound; on a CPU it has the bits of
    that op called with the rows of its expert. Differentiable in ``a`` and ``bias``, backward and
    forward; a derivative reads ``offs`` on the host, so that it waits for the device, and makes the
    dense weight of one expert at a time. vmap runs over ``a`` and ``bias``, one element at a time.

    Args:
        a: float16, bfloat16 or float32 ``[M, K]``; any strides and alignment; no rows are fine.
        b_packed: uint8 ``[E, round_up(N, 64), round_up(K, 64) * bits / 8]``: the weights from
            :func:`pack_weights`, stacked.
        scales: ``[E, G, N]`` in the dtype of ``a``. Values are not looked at, as of
            :func:`fpA_intB_gemm`. Copied at each call where they are not contiguous, as all
            tensors of weights are.
        offs: int32 ``[E]``, where the rows of each expert end. A CPU refuses what falls or leaves
            0..M; a GPU does not look, and takes an offset below the one before it for that one and
            one above M for M.
        zeros: ``[E, G, N]`` in the dtype of ``a``, or None for symmetric weights.
        bias: ``[E, N]`` in the dtype of ``a``, or None.
        bits, group_size, zero_mode, activation: as of :func:`fpA_intB_gemm`, for all experts.

    Returns:
        ``[M, N]``, contiguous, in the dtype of ``a``; 0 in rows of no expert.

    Raises:
        What :func:`fpA_intB_gemm` raises, and ValueError for ``offs`` on a CPU.
    """
    _library.require()
    refuse_non_numbers("mixed_gemm::grouped_fpA_intB_gemm", bits=bits, group_size=group_size)
    out: Tensor = torch.ops.mixed_gemm.grouped_fpA_intB_gemm(
        a, b_packed, scales, offs, zeros, bias, bits=bits, group_size=group_size,
        zero_mode=zero_mode, activation=activation,
    )  # fmt: skip
    return out


@translates_errors("grouped_fpA_fpB_gemm")
def grouped_fpA_fpB_gemm(
    a: Tensor,
    b_packed: Tensor,
    scales: Tensor,
    offs: Tensor,
    factor: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    weight: str,
    group_size: int,
    activation: str = "identity",
) -> Tensor:
    """activation(a @ w[e].T + bias[e]) of the rows of each expert e, with the weights of
    :func:`fpA_fpB_gemm`: code * scale * factor, codes of 4 or 8 bits.

    It is to that op what :func:`grouped_fpA_intB_gemm` is to :func:`fpA_intB_gemm`, with the same
    rule for ``scales``, which have to be below 4 in magnitude.

    Args:
        a, offs: as of :func:`grouped_fpA_intB_gemm`.
        b_packed: uint8 ``[E, round_up(N, 64), round_up(K, 64) * bits / 8]``: the codes from
            :func:`pack_codes`, stacked.
        scales: ``[E, G, N]`` in the dtype of ``a``.
        factor: float32 ``[E, N]``, or None for ones. bias: ``[E, N]`` in the dtype of ``a``, or
            None.
        weight, group_size, activation: as of :func:`fpA_fpB_gemm`, for all experts.

    Returns:
        ``[M, N]``, contiguous, in the dtype of ``a``; 0 in rows of no expert.

    Raises:
        What :func:`grouped_fpA_intB_gemm` raises.
    """
    _library.require()
    refuse_non_numbers("mixed_gemm::grouped_fpA_fpB_gemm", group_size=group_size)
    out: Tensor = torch.ops.mixed_gemm.grouped_fpA_fpB_gemm(
        a, b_packed, scales, offs, factor, bias, weight=weight, group_size=group_size,
        activation=activation,
    )  # fmt: skip
    return out


def _rule(op: str, *names: str) -> Rule:
    """The rule of an op.

    Args:
        names: its arguments that make the weights.
    """
    return Rule(
        "a",
        "bias",
        through_op("a", "bias"),
        lambda saved, grad: by_expert.transposed(op, saved, grad, names),
        spread=lambda saved, dbias: by_expert.spread(
            dbias, saved.arguments["offs"], saved.output_shape[0]
        ),
        collect=lambda saved, grad: by_expert.collected(grad, saved.arguments["offs"]),
    )


def _forced(op: str, frozen: tuple[str, ...], autocast: Any) -> Op:
    return Op(
        f"{op}_config",
        "the same with a kernel configuration by name, for tests and benchmarks",
        derivatives=Derivatives(FORCED, whys=dict.fromkeys(frozen, WEIGHTS)),
        autocast=autocast,
        vmap=_LOOP,
        flops=matrix_product("a"),
        sharding="a configuration is forced for the shape of one device",
    )


_WEIGHT = ("b_packed", "scales")
_LOOP = Batching(looped=("a", "bias"))

OPS = (
    Op(
        "grouped_fpA_intB_gemm",
        "activation(a @ w[e].T + bias[e]) of the rows of each expert, w packed in 4 or 8 bits",
        derivatives=Derivatives(
            ADAPTER,
            _rule("grouped_fpA_intB_gemm", *_WEIGHT, "zeros", "bits", "group_size", "zero_mode"),
        ),
        autocast=True,
        vmap=_LOOP,
        flops=matrix_product("a"),
        sharding=Sharding(
            (channel_blocks({"scales": 2, "b_packed": 1, "zeros": 2, "bias": 1}, -1),)
        ),
    ),
    _forced("grouped_fpA_intB_gemm", ("scales", "zeros"), True),
    Op(
        "grouped_fpA_fpB_gemm",
        "activation(a @ w[e].T + bias[e]) of the rows of each expert, w packed in floats of 4 or 8 "
        "bits",
        derivatives=Derivatives(
            ADAPTER, _rule("grouped_fpA_fpB_gemm", *_WEIGHT, "factor", "weight", "group_size")
        ),
        autocast=AllBut(("factor",)),
        vmap=_LOOP,
        flops=matrix_product("a"),
        sharding=Sharding(
            (channel_blocks({"scales": 2, "b_packed": 1, "factor": 1, "bias": 1}, -1),)
        ),
    ),
    _forced("grouped_fpA_fpB_gemm", ("scales", "factor"), AllBut(("factor",))),
)
