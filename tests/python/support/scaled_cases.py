"""Problems of scaled_mm (problems.scaled), and lists of cases that turn on one thing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import torch
from problems.scaled import AZP, OUT_DTYPES, ScaledCase, ScaledProblem, make

__all__ = ["AZP", "OUT_DTYPES", "ScaledCase", "ScaledProblem", "make"]


def epilogue_cases(base: ScaledCase) -> Iterator[ScaledCase]:
    """Every output type x scale form x zero point x bias."""
    flags = (False, True)
    for out, rows, columns, azp, bias in itertools.product(OUT_DTYPES, flags, flags, AZP, flags):
        if azp != "none" and base.operand != torch.int8:
            continue
        yield replace(
            base, out_dtype=out, row_scales=rows, column_scales=columns, azp=azp, bias=bias
        )


def shapes() -> Iterator[tuple[int, int, int]]:
    """Ragged sizes around vectors, rows of a call, tiles and steps of K, then together."""
    yield from ((m, 40, 96) for m in (0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 129))
    yield from ((5, n, 96) for n in (1, 2, 3, 5, 7, 8, 9, 15, 17, 31, 33, 47, 49, 63, 65, 129, 257))
    yield from ((5, 40, k) for k in (0, 1, 2, 3, 4, 5, 15, 17, 31, 33, 63, 65, 127, 129, 257, 2049))
    yield from ((1, 1, 1), (17, 33, 47), (65, 127, 129), (130, 257, 1000), (257, 66, 4100))
