"""A large weight, some rows at a time: what is computed between it and the result then stays in the
caches of a CPU, and in little memory on any device.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.compiler import is_compiling

# Elements of a block. On a CPU they make 1 MiB of float32; with whole weights of 4096 x 4096 each
# function waits for memory, and rounding to int4 takes ten times as long. On a GPU a block is one
# launch of each function, and its size bounds the memory.
_ON_CPU = 1 << 18
_ELSEWHERE = 1 << 26


def is_plain(x: Tensor) -> bool:
    """Whether ``x`` has numbers now: it is no subclass and nothing records what is done to it."""
    return type(x) in (Tensor, torch.nn.Parameter) and not x.is_meta and not is_compiling()


def row_blocks(x: Tensor, multiple: int = 1) -> list[slice]:
    """Consecutive rows, block by block; all at once in a trace.

    Args:
        x: ``[N, ...]``. multiple: rows of all blocks but the last are a multiple of it.
    """
    if x.numel() == 0 or not is_plain(x):
        return [slice(0, len(x))]
    elements = _ON_CPU if x.device.type == "cpu" else _ELSEWHERE
    step = max(1, elements * len(x) // x.numel() // multiple) * multiple
    return [slice(start, min(start + step, len(x))) for start in range(0, len(x), step)]


def by_rows(
    function: Callable[[Tensor], tuple[Tensor, ...]], x: Tensor, multiple: int = 1
) -> tuple[Tensor, ...]:
    """The results of a function that computes each row, or each ``multiple`` of rows, by itself.

    Args:
        function: of some rows of ``x``; its results have rows in dimension 0.
        x: ``[N, ...]``. multiple: as of :func:`row_blocks`.
    """
    found = [function(x[rows]) for rows in row_blocks(x, multiple)]
    return found[0] if len(found) == 1 else tuple(map(torch.cat, zip(*found, strict=True)))
