"""Names of configurations, and the groups and zero points that reach each compiled kernel."""

from __future__ import annotations

import torch
from problems.gemm import Case

import mixed_gemm

TILED = ("multistage", "wgmma")  # families whose kernels split their work
SPLITS = ("", "_streamk1", "_streamk3", "_parallel2", "_parallel3")
DTYPES = (torch.float16, torch.bfloat16)


def listed_configs() -> list[str]:
    """What runs on this GPU, as the planner lists it (of an H200 where there is none: the tests are
    only collected then)."""
    device = "cuda" if torch.cuda.is_available() else "cuda:sm=90,sms=132,smem=232448"
    return sorted(c.config for c in mixed_gemm.plan(16, 4096, 4096, device=device).candidates)


LISTED = listed_configs()
KERNELS = tuple(n for n in LISTED if n.startswith(("skinny", *TILED)) and n.count("_") == 1)
SKINNY = tuple(kernel for kernel in KERNELS if kernel.startswith("skinny"))
SKINNY_CLUSTERS = tuple(n for n in LISTED if n.startswith("skinny") and "_cluster" in n)
WGMMA = tuple(kernel for kernel in KERNELS if kernel.startswith("wgmma"))  # none but on Hopper


def clusters_of(kernel: str, case: Case) -> list[str]:
    """The kernel with the clusters that the planner lists: these depend on the GPU as well."""
    plan = mixed_gemm.plan(
        case.m,
        case.n,
        case.k,
        dtype=case.dtype,
        bits=case.bits,
        group_size=case.group_size,
        zero_mode="sub" if case.zero_mode == "sub_real" else case.zero_mode,
        device="cuda",
    )
    return [c.config for c in plan.candidates if c.config.startswith(f"{kernel}_cluster")]


def configs_of(kernel: str, case: Case) -> list[str]:
    """The kernel with every way to split K that it has."""
    splits = SPLITS if kernel.startswith(TILED) else ("",)
    return [kernel + split for split in splits] + clusters_of(kernel, case)


# What selects a compiled kernel, or a loop of it: (group sizes, zero modes). half: of a k-tile.
ZEROS = ("sub", "add", "sub_real")
MODES = {
    "per_channel": ((-1, 512), ("none",)),
    "coarse": ((64, 128, 192, 256), ("none",)),
    "coarse_zero": ((-1, 64, 128, 256), ZEROS),
    "half": ((32, 96, 160), ("none",)),
    "half_zero": ((32, 96, 160), ZEROS),
    "fine": ((16, 48, 80), ("none",)),
    "fine_zero": ((16, 48, 80), ZEROS),
}


def has_mode(kernel: str, mode: str) -> bool:
    """Whether the kernel takes the mode's groups: 16 and 32 tokens by wgmma not groups of 16."""
    return not (kernel.startswith(("wgmma_m16n", "wgmma_m32n")) and mode.startswith("fine"))
