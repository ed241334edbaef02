"""Names of configurations of the scaled GEMMs, and the op with one of them forced."""

from __future__ import annotations

import json
import re
from typing import Any

import torch
from support.scaled_cases import ScaledProblem

from mixed_gemm.reference import scaled as reference_scaled
from mixed_gemm.selection.planning import device_string

DEVICE = "cuda"
FLOAT8 = torch.float8_e4m3fn
TILE_K = 128  # a slice of K is at least one of them


def candidates(m: int, n: int, k: int, operand: str = "int8", device: str = "") -> list[str]:
    """What the planner of the library lists, float8 on Hopper included (mixed_gemm.plan, in
    Python, sends that to torch)."""
    where = device or device_string(DEVICE)
    answer = json.loads(torch.ops.mixed_gemm._plan_scaled_mm(m, n, k, operand, "float16", where))
    assert answer["ok"] or operand != "int8", answer
    return [c["config"] for c in answer.get("candidates", ())]


def tile_of(name: str) -> tuple[int, int]:
    """scaled_m16n64s8... -> (16, 64)"""
    found = re.match(r"(?:scaled|wgmma)_m(\d+)n(\d+)s", name)
    assert found, name
    return int(found[1]), int(found[2])


def compiled_kernels() -> tuple[str, ...]:
    """The names of all tiles for int8 that run on this GPU (an H200 where there is none: the tests
    are only collected then), small tiles first."""
    device = "" if torch.cuda.is_available() else "cuda:sm=90,sms=132,smem=232448"
    names = candidates(64, 4096, 4096, device=device)
    plain = (n for n in names if n.count("_") == 1)
    return tuple(sorted(plain, key=lambda n: (tile_of(n)[0] * tile_of(n)[1], n)))


KERNELS = compiled_kernels()
SMALL, MIDDLE, LARGE = KERNELS[0], KERNELS[len(KERNELS) // 2], KERNELS[-1]


def configs_of(m: int, n: int, k: int, operand: str = "int8", kernel: str = "") -> list[str]:
    """All that the planner lists (of one kernel, if named), and for each tile more workers of
    stream-K than the GPU holds at once, an odd split, and a slice for every step of K."""
    listed = candidates(m, n, k, operand)
    steps = -(-k // TILE_K)
    plain = [name for name in listed if name.count("_") == 1]
    more = [f"{name}_parallel{s}" for name in plain for s in (5, steps) if 1 < s <= min(steps, 40)]
    more += [f"{name}_streamk{s}" for name in plain for s in (3, 16) if steps > 0]
    names = dict.fromkeys(listed + more)
    return [name for name in names if not kernel or name.split("_")[:2] == kernel.split("_")]


def sum_epsilon() -> float:
    """Of fp8 sums in our kernel: on sm_90 fp16 tensor cores emulate the instruction; those of
    sm_89 are taken to be as coarse as Hopper's own."""
    emulated = torch.cuda.get_device_capability() >= (9, 0)
    return 2.0**-23 if emulated else reference_scaled.HOPPER_FP8_EPSILON


def run_config(
    problem: ScaledProblem, config: str, a: torch.Tensor | None = None, **changes: Any
) -> torch.Tensor:
    """Into memory that held NaN: an element that is not written shows."""
    arguments = {
        "a": problem.a if a is None else a,
        "b": problem.b,
        "scale_a": problem.scale_a,
        "scale_b": problem.scale_b,
        "azp_adj": problem.azp_adj,
        "azp": problem.azp,
        "bias": problem.bias,
        "out_dtype": problem.case.out_dtype,
        "config": config,
        **changes,
    }
    shape = (*arguments["a"].shape[:-1], problem.b.shape[1])
    poison = torch.full(shape, float("nan"), dtype=arguments["out_dtype"], device=problem.a.device)
    del poison
    return torch.ops.mixed_gemm._scaled_mm_config(**arguments)
