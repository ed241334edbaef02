"""Names of configurations of block_quant_gemm, and the op with one of them forced."""

from __future__ import annotations

import json
from typing import Any

import torch
from problems.block import BlockCase, BlockProblem

from mixed_gemm.selection.planning import device_string

DEVICE = "cuda"


def configs_of(case: BlockCase) -> list[str]:
    """All that the planner lists for this GPU, and for each tile an odd number of slices and more
    workers of stream-K than the GPU holds at once, as far as there are parts of K for them."""
    ask = torch.ops.mixed_gemm._plan_block_quant_gemm
    answer = json.loads(ask(case.m, case.n, case.k, case.block_size, device_string(DEVICE)))
    assert answer["ok"], answer
    listed = [c["config"] for c in answer["candidates"]]
    plain = [name for name in listed if name.count("_") == 1]
    more = [f"{name}_streamk{s}" for name in plain for s in (3, 16) if case.k > 0]
    more += [f"{name}_cluster3" for name in plain if f"{name}_cluster4" in listed]
    return list(dict.fromkeys(listed + more))


def run_config(
    problem: BlockProblem, config: str, a: torch.Tensor | None = None, **changes: Any
) -> torch.Tensor:
    """Into memory that held NaN: an element that is not written shows."""
    arguments = dict(
        zip(("a", "b", "scale_b", "offset_b", "bias"), problem.arguments(), strict=True)
    )
    arguments = {**arguments, **problem.options(), "config": config, **changes}
    if a is not None:
        arguments["a"] = a
    shape = (*arguments["a"].shape[:-1], arguments["b"].shape[1])
    poison = torch.full(shape, float("nan"), dtype=problem.case.dtype, device=problem.a.device)
    del poison
    return torch.ops.mixed_gemm._block_quant_gemm_config(**arguments)
