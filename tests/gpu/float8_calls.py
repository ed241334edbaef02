"""float8 products on the GPU with a configuration by name, and what they must be. Not a pytest
file."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch
from problems.placing import PLACES_OF_ROWS, place, place_unchanged, poison_output
from problems.scaled import STEP_K, ScaledCase, listed_for
from torch import Tensor

from mixed_gemm.reference import error_ratio
from mixed_gemm.reference import scaled as reference_scaled

DEVICE = "cuda"
FLOAT8 = torch.float8_e4m3fn
BLOCK = (128, 128)  # of the weight: rows and elements of K that share a scale


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def wgmma_names(m: int, n: int, k: int) -> list[str]:
    """The kernels by wgmma that the planner lists for float8, with every listed split."""
    names = listed_for(ScaledCase(m, n, k, operand=FLOAT8), DEVICE)
    return [name for name in names if name.startswith("wgmma")]


def kernels() -> list[str]:
    """Without a split."""
    return [name for name in wgmma_names(64, 4096, 4096) if name.count("_") == 1]


def has_few_rows(kernel: str) -> bool:
    """Fewer than the instruction: its sums are handed to no other block."""
    return "_m16n" in kernel


def splits_of(kernel: str, k: int) -> list[str]:
    """A kernel with every kind of split that K allows, more workers than the GPU holds included."""
    steps = ceil_div(k, STEP_K)
    streams = () if has_few_rows(kernel) else (1, 2, 3, 16)
    slices = sorted({s for s in (2, 3, 5, steps) if 1 < s <= min(steps, 40)})
    return [
        kernel,
        *(f"{kernel}_streamk{blocks}" for blocks in streams),
        *(f"{kernel}_parallel{s}" for s in slices),
    ]


@dataclass
class Float8Call:
    """Operands; ``blocks``: scales of blocks of 128 x 128, else of rows and columns."""

    a: Tensor  # [M, K]
    weight: Tensor  # [N, K]
    scale_a: Tensor
    scale_b: Tensor
    bias: Tensor | None
    out_dtype: torch.dtype
    blocks: bool

    def run(self, config: str = "", **changes: Any) -> Tensor:
        """Into memory that held NaN. Empty: what dispatch/ chooses."""
        a = changes.get("a", self.a)
        like = torch.empty(0, dtype=self.out_dtype, device=a.device)
        poison_output((a.shape[0], self.weight.shape[0]), like)
        arguments = {
            "a": self.a,
            "b": self.weight.t(),
            "scale_a": self.scale_a,
            "scale_b": self.scale_b,
            "azp_adj": None,
            "azp": None,
            "bias": self.bias,
            "out_dtype": self.out_dtype,
            "config": config,
            "block_size": list(BLOCK) if self.blocks else None,
            **changes,
        }
        out: Tensor = torch.ops.mixed_gemm._scaled_mm_config(**arguments)
        return out

    def oracle(self) -> tuple[Tensor, Tensor]:
        """(exact, bound), float64."""
        operands = (self.a, self.weight.t(), self.scale_a, self.scale_b, self.bias)
        block = BLOCK if self.blocks else None
        bound = reference_scaled.error_bound(
            *operands,
            out_dtype=self.out_dtype,
            block_size=block,
            promotion=reference_scaled.FP8_PROMOTION,
        )
        return reference_scaled.scaled_mm(*operands, block_size=block), bound

    def ratio(self, out: Tensor) -> float:
        assert out.dtype == self.out_dtype and out.is_contiguous()
        return error_ratio(out, *self.oracle())


def normal(rows: int, columns: int, spread: float = 4.0) -> Tensor:
    return (torch.randn(rows, columns, device=DEVICE) * spread).to(FLOAT8)


def scales(*shape: int) -> Tensor:
    """Of both signs, which is legal."""
    signs = torch.randint(0, 2, shape, device=DEVICE) * 2 - 1
    return (0.5 + torch.rand(shape, device=DEVICE)) * signs / 64


def make(
    m: int,
    n: int,
    k: int,
    *,
    out_dtype: torch.dtype = torch.float32,
    blocks: bool = False,
    bias: bool = False,
    row_scales: bool = True,
    column_scales: bool = True,
) -> Float8Call:
    groups = ceil_div(k, BLOCK[1])
    if blocks:
        of_a, of_b = scales(m, groups), scales(ceil_div(n, BLOCK[0]), groups)
    else:
        of_a = scales(m, 1) if row_scales else scales(1)
        of_b = scales(n) if column_scales else scales(1)
    added = torch.randn(n, device=DEVICE).to(out_dtype) if bias else None
    return Float8Call(normal(m, k), normal(n, k), of_a, of_b, added, out_dtype, blocks)


# Around tiles of 64 and 128 rows, and of 64, 128 and 256 columns; around lines of K and blocks.
ROWS = (1, 2, 7, 8, 9, 16, 17, 31, 63, 64, 65, 100, 127, 128, 129, 200, 257, 300)
COLUMNS = (1, 8, 15, 64, 65, 96, 127, 128, 129, 136, 255, 256, 257, 384, 520, 1000)
DEPTHS = (1, 16, 31, 32, 33, 100, 127, 128, 129, 200, 256, 384, 500, 1024, 1100, 2049, 4096)


def drawn(draw: random.Random, blocks: bool) -> Float8Call:
    """A free choice of everything."""
    m, n, k = draw.choice(ROWS), draw.choice(COLUMNS), draw.choice(DEPTHS)
    call = make(
        m,
        n,
        k,
        out_dtype=draw.choice((torch.float16, torch.bfloat16, torch.float32)),
        blocks=blocks,
        bias=draw.random() < 0.5,
        row_scales=draw.random() < 0.5,
        column_scales=draw.random() < 0.5,
    )
    call.a = place_unchanged(call.a, draw.choice(PLACES_OF_ROWS))
    call.weight = place_unchanged(call.weight, draw.choice(PLACES_OF_ROWS))
    if call.bias is not None:
        call.bias = place(call.bias, draw.choice(("alone", "odd_offset", "every_second_row")))
    where = draw.choice(("alone", "guarded", "odd_offset"))
    call.scale_a, call.scale_b = place(call.scale_a, where), place(call.scale_b, where)
    return call
