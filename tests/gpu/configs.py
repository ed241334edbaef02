"""Names of configurations and the cases that reach each compiled kernel."""

from __future__ import annotations

from dataclasses import replace

import torch
from cases import Case

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
# m around the tiles, n and k ragged (not multiples of 64, of 8, odd) and regular.
SHAPES = (
    (1, 128, 512),
    (5, 72, 520),
    (17, 257, 640),
    (33, 200, 1000),
    (64, 384, 512),
    (100, 136, 777),
    (130, 264, 512),
    (257, 512, 576),
)


# Skinny kernels have modes of their own for int4 groups of half an iteration (64), and of a quarter
# (32) up to two rows.
SKINNY_MODES = {
    "skinny_half": ((64, 192, 320), ("none",)),
    "skinny_half_zero": ((64, 192, 320), ("sub", "sub_real")),
    "skinny_quarter": ((32, 96, 160), ("none",)),
    "skinny_quarter_zero": ((32, 96, 160), ("sub", "sub_real")),
}
QUARTER_SHAPES = (
    (1, 128, 512),
    (2, 72, 520),
    (1, 257, 640),
    (2, 200, 1000),
    (1, 384, 777),
    (2, 136, 2048),
    (2, 4096, 4128),
)


def has_mode(kernel: str, mode: str) -> bool:
    """Whether the kernel takes the mode's groups: 16 and 32 tokens by wgmma not groups of 16."""
    return not (kernel.startswith(("wgmma_m16n", "wgmma_m32n")) and mode.startswith("fine"))


def cases_of(mode: str, dtype: torch.dtype, bits: int) -> list[Case]:
    """A case per shape; group size, zero mode, bias, activation and pre_scale rotate, so that each
    value meets each shape over the tiles and splits."""
    groups, zero_modes = (MODES | SKINNY_MODES)[mode]
    activations = ("identity", "relu", "relu6", "gelu", "gelu_tanh", "silu")
    base = Case(dtype=dtype, bits=bits)
    cases = []
    shapes = QUARTER_SHAPES if mode.startswith("skinny_quarter") else SHAPES
    for i, (m, n, k) in enumerate(shapes):
        group = groups[i % len(groups)]
        cases.append(
            replace(
                base,
                m=m,
                n=n,
                k=k,
                group_size=k if group == 512 and k % 16 == 0 else -1 if group == 512 else group,
                zero_mode=zero_modes[i // 2 % len(zero_modes)],
                bias=i % 2 == 1,
                pre_scale=i % 4 == 2,
                activation=activations[i % len(activations)],
            )
        )
    return cases
