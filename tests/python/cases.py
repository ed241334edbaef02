"""Problems of fpA_intB_gemm (problems.gemm), and lists of cases that turn on one thing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from problems.gemm import DTYPES, GROUP_SIZES, Case, Problem, make

from mixed_gemm.scheme import ACTIVATIONS

__all__ = ["DTYPES", "GROUP_SIZES", "ZERO_MODES", "Case", "Problem", "epilogue_cases", "make"]

ZERO_MODES = ("none", "sub", "sub_real", "add")


def scheme_cases(base: Case) -> Iterator[Case]:
    """Every dtype x bits x group size x zero mode; bias, pre_scale and activation rotate."""
    product = itertools.product(DTYPES, (4, 8), GROUP_SIZES, ZERO_MODES)
    for i, (dtype, bits, group_size, zero_mode) in enumerate(product):
        if group_size > base.k:
            continue
        yield replace(
            base,
            dtype=dtype,
            bits=bits,
            group_size=group_size,
            zero_mode=zero_mode,
            bias=i % 2 == 1,
            pre_scale=i % 3 == 1,
            activation=ACTIVATIONS[i % len(ACTIVATIONS)],
        )


def epilogue_cases(base: Case) -> Iterator[Case]:
    """Every activation x bias x pre_scale x dtype."""
    product = itertools.product(DTYPES, ACTIVATIONS, (False, True), (False, True))
    for dtype, activation, bias, pre_scale in product:
        yield replace(base, dtype=dtype, activation=activation, bias=bias, pre_scale=pre_scale)


def shape_cases() -> Iterator[Case]:
    """Ragged shapes around the padding (64), the mma step (16), the vector widths and the row
    blocks, one dimension at a time and then together; bits, dtype and scheme rotate."""
    shapes = [(m, 96, 128) for m in (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 130)]
    shapes += [(2, n, 80) for n in (1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 200)]
    shapes += [(3, 72, k) for k in (1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129, 193)]
    shapes += [(1, 1, 1), (1, 65, 65), (17, 33, 47), (5, 130, 257), (40, 70, 1000), (257, 66, 130)]
    for i, (m, n, k) in enumerate(shapes):
        fits = [g for g in GROUP_SIZES if g <= k]
        yield Case(
            m,
            n,
            k,
            DTYPES[i % 3],
            (4, 8)[i // 2 % 2],
            fits[i % len(fits)],
            ZERO_MODES[i // 3 % 4],
            bias=i % 2 == 0,
            pre_scale=i % 5 == 0,
        )
