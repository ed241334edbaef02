"""Names of configurations of the scaled GEMMs."""

from __future__ import annotations

import re

import torch
from problems.scaled import ScaledCase, Sums, listed_for, sums_on_cuda
from problems.scaled import configs_of as all_configs_of

DEVICE = "cuda"
FLOAT8 = torch.float8_e4m3fn
TILE_K = 128  # a slice of K is at least one of them


def candidates(m: int, n: int, k: int, operand: torch.dtype = torch.int8) -> list[str]:
    """What the planner of the library lists for this GPU."""
    return listed_for(ScaledCase(m, n, k, operand=operand), DEVICE)


def tile_of(name: str) -> tuple[int, int]:
    """scaled_m16n64s8..., skinny_m16n64w8 -> (16, 64)"""
    found = re.match(r"(?:scaled|skinny|wgmma)_m(\d+)n(\d+)[sw]", name)
    assert found, name
    return int(found[1]), int(found[2])


def compiled_kernels() -> tuple[str, ...]:
    """The names of all tiles for int8 that run on this GPU (an H200 where there is none: the tests
    are only collected then), small tiles first."""
    device = DEVICE if torch.cuda.is_available() else "cuda:sm=90,sms=132,smem=232448"
    names = listed_for(ScaledCase(64, 4096, 4096), device)
    plain = (n for n in names if n.count("_") == 1)
    return tuple(sorted(plain, key=lambda n: (tile_of(n)[0] * tile_of(n)[1], n)))


KERNELS = compiled_kernels()
TILES = tuple(name for name in KERNELS if not name.startswith("skinny"))  # they share out K
SMALL, MIDDLE, LARGE = TILES[0], TILES[len(TILES) // 2], TILES[-1]
VECTOR_K = 16  # K of skinny kernels is a multiple of it


def configs_of(case: ScaledCase, kernel: str = "") -> list[str]:
    """All of a case (problems.scaled.configs_of) on this GPU; of one kernel, if named."""
    names = all_configs_of(case, DEVICE)
    return [name for name in names if not kernel or name.split("_")[:2] == kernel.split("_")]


def sums_of(config: str) -> Sums:
    """Of float8 in a configuration or a kernel of ours; empty: in the choice."""
    return sums_on_cuda(config, DEVICE)
