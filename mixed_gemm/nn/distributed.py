"""DTensor sharding rules of ``fpA_intB_gemm``, which importing this module registers.

Not imported by ``import mixed_gemm``: torch.distributed.tensor takes 0.7 s to import.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

from .. import _library
from ..ops.problem import PAD_N


def _gemm_shardings(
    a: Any,
    b_packed: Any,
    scales: Any,
    zeros: Any = None,
    bias: Any = None,
    pre_scale: Any = None,
    **scalars: Any,
) -> list[tuple[list[Any], list[Any]]]:
    """Rows of ``a`` may be cut anywhere, the weight at whole groups of 64 output channels (a plain
    slice of the packed layout). K may not: a slice of it is another packed weight (``rowwise``)."""

    def given(placement: Any, tensor: Any) -> Any:
        return None if tensor is None else placement

    def rule(out: Any, row: Any, packed: Any, group: Any, channel: Any) -> Any:
        inputs = [row, packed, group, given(group, zeros), given(channel, bias)]
        return [out], [*inputs, given(Replicate(), pre_scale)]

    last, whole = a.ndim - 1, Replicate()
    rules = [rule(whole, whole, whole, whole, whole)]
    rules += [rule(Shard(i), Shard(i), whole, whole, whole) for i in range(last)]
    if scales.shape[1] % (PAD_N * scales.mesh.size()) == 0:
        rules.append(rule(Shard(last), whole, Shard(0), Shard(1), Shard(0)))
    return rules


if _library.available:
    register_sharding(torch.ops.mixed_gemm.fpA_intB_gemm.default)(_gemm_shardings)
