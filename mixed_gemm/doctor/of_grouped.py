"""Checks of the products whose rows belong to experts: one with rows, one without, one with all but
the last of the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .. import ops
from ..reference import grouped
from ..selection.planning import plan
from .draw import BITS, GROUP, Here, K, M, N, bounded

_ENDS = (2, 2, M - 1)
_EXPERTS = len(_ENDS)

Call = Callable[..., Tensor]


def _offs() -> Tensor:
    return torch.tensor(_ENDS, dtype=torch.int32)


def gemm(here: Here, call: Call) -> float:
    a, q = here.normal(M, K), here.integers(BITS, _EXPERTS, N, K)
    groups = (_EXPERTS, K // GROUP, N)
    scales, zeros = here.scales(*groups), here.integers(BITS, *groups).half()
    packed = torch.stack([ops.pack_weights(here(x), BITS) for x in q])
    given = (here(a), packed, here(scales), here(_offs()), here(zeros))
    out = call(*given, bits=BITS, group_size=GROUP)
    return bounded(out, grouped.oracle(a, q, scales, _offs(), zeros, group_size=GROUP))


def float_gemm(here: Here, call: Call) -> float:
    """MXFP4's codes, with scales that are powers of two, and a factor for each column."""
    a, codes = here.normal(M, K), here.integers(BITS, _EXPERTS, N, K) + 8
    powers = torch.exp2(here.integers(2, _EXPERTS, K // GROUP, N).float() - 1)
    scales, factor = powers.to(a.dtype), here.scales(_EXPERTS, N, dtype=torch.float32)
    packed = torch.stack([ops.pack_codes(here(x), "e2m1") for x in codes])
    options: dict[str, Any] = {"weight": "e2m1", "group_size": GROUP}
    given = (here(a), packed, here(scales), here(_offs()), here(factor))
    out = call(*given, **options)
    return bounded(out, grouped.float_oracle(a, codes, scales, _offs(), factor, **options))


def by_name(op: str) -> Call:
    """The op with the configuration that ``plan`` names."""
    call = getattr(torch.ops.mixed_gemm, f"{op}_config")

    def named(a: Tensor, *parts: Tensor, **options: Any) -> Tensor:
        of_problem = {**options, **({"zero_mode": "sub"} if "bits" in options else {})}
        found = plan(M, N, K, dtype=a.dtype, device=a.device, experts=_EXPERTS, **of_problem)
        out: Tensor = call(a, *parts, **options, config=found.selected)
        return out

    return named
