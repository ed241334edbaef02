"""Every op that computes something, by name: what its problems turn on and how to make one.
Python, GPU and fuzz tests walk this table.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from . import awq, block, conv, conv_int8, gemm, quantize, scaled, scaled_dynamic, weights
from .covering import Row, Rules, all_pairs, may_meet, random_row
from .values import seed_of


@dataclass(frozen=True)
class Op:
    """``sizes``: fields that are any number up to the limit, when drawn at random. ``cost``: of a
    case, in multiplications."""

    case: type
    factors: dict[str, tuple[Any, ...]]
    make: Callable[..., Any]
    cost: Callable[[Any], int]
    rules: Rules
    sizes: dict[str, int]
    from_row: Callable[[Row], Any] | None = None

    def of(self, row: Row) -> Any:
        return self.from_row(row) if self.from_row else self.case(**row)

    def pairs(self, seed: int = 0, **fixed: tuple[Any, ...]) -> Iterator[Any]:
        """Cases in which every two values meet. ``fixed``: other values of a factor."""
        for row in all_pairs({**self.factors, **fixed}, self.rules, seed):
            yield self.of(row)

    def draw(self, rng: random.Random, most: int, **fixed: tuple[Any, ...]) -> Any:
        """One case at random that costs ``most`` at most, sizes from the table of factors or any
        numbers."""
        factors = {**self.factors, **fixed}
        while True:
            free = {
                name: (_any_size(rng, limit),)
                for name, limit in self.sizes.items()
                if name not in fixed and rng.random() < 0.5
            }
            row = {name: rng.choice(values) for name, values in {**factors, **free}.items()}
            if may_meet(self.rules, row):
                case = self.of(row)
                if self.cost(case) <= most:
                    return case

    def neighbours(self, row: Row, rng: random.Random, each: int = 2) -> Iterator[tuple[Row, str]]:
        """Rows that differ from ``row`` in one field, and the name of its factor."""
        for name, values in self.factors.items():
            others = [v for v in values if v != row[name]]
            if name == "scheme":  # of two fields
                old = row[name]
                others = [v for v in others if (v[0] == old[0]) != (v[1] == old[1])]
            for value in rng.sample(others, min(each, len(others))):
                other = {**row, name: value}
                if may_meet(self.rules, other):
                    yield other, name

    def draw_row(self, rng: random.Random, most: int) -> Row:
        while True:
            row = random_row(self.factors, self.rules, rng)
            if self.cost(self.of(row)) <= most:
                return row


def _any_size(rng: random.Random, limit: int) -> int:
    """1..limit, as many small as large ones."""
    return min(limit, int(math.exp(rng.uniform(0, math.log(limit + 1)))))


def _free(case: Any) -> int:
    return case.n * case.k if hasattr(case, "k") else case.out_c * case.in_c


GEMM_SIZES = {"m": 700, "n": 1500, "k": 4200}
CONV_SIZES = {"in_c": 300, "out_c": 300, "images": 9}

OPS: dict[str, Op] = {
    "fpA_intB_gemm": Op(
        gemm.Case, gemm.FACTORS, gemm.make, gemm.cost, gemm.RULES, GEMM_SIZES, gemm.from_row,
    ),
    "pack_weights": Op(
        weights.PackCase, weights.PACK_FACTORS, weights.make_pack, _free, {},
        {"n": 1500, "k": 4200},
    ),
    "pack_conv_weights": Op(
        weights.PackConvCase, weights.PACK_CONV_FACTORS, weights.make_pack_conv, _free, {},
        {"in_c": 300, "out_c": 300},
    ),
    "dequantize_weights": Op(
        weights.DequantizeCase, weights.DEQUANTIZE_FACTORS, weights.make_dequantize, _free,
        weights.DEQUANTIZE_RULES, {"n": 1500, "k": 4200}, weights.dequantize_from_row,
    ),
    "scaled_mm": Op(
        scaled.ScaledCase, scaled.FACTORS, scaled.make, scaled.cost, scaled.RULES, GEMM_SIZES
    ),
    "scaled_mm_dynamic": Op(
        scaled_dynamic.ScaledDynamicCase, scaled_dynamic.FACTORS, scaled_dynamic.make,
        scaled_dynamic.cost, scaled_dynamic.RULES, GEMM_SIZES,
    ),
    "quantize": Op(
        quantize.QuantizeCase, quantize.FACTORS, quantize.make, quantize.cost, quantize.RULES,
        {"m": 700, "k": 9000},
    ),
    "awq": Op(awq.AwqCase, awq.FACTORS, awq.make, awq.cost, awq.RULES, {"m": 700}),
    "repack": Op(
        awq.RepackCase, awq.REPACK_FACTORS, awq.make_repack, _free, awq.REPACK_RULES, {}
    ),
    "qconv2d": Op(
        conv.ConvCase, conv.FACTORS, conv.make, conv.cost, conv.RULES, CONV_SIZES, conv.from_row
    ),
    "qconv2d_int8": Op(
        conv_int8.ConvInt8Case, conv_int8.FACTORS, conv_int8.make, conv_int8.cost, conv_int8.RULES,
        CONV_SIZES, conv_int8.from_row,
    ),
    "block_quant_gemm": Op(
        block.BlockCase, block.FACTORS, block.make, block.cost, block.RULES, GEMM_SIZES,
        block.from_row,
    ),
}  # fmt: skip
# Those that choose among configurations.
FORCED = ("fpA_intB_gemm", "scaled_mm", "qconv2d", "qconv2d_int8", "block_quant_gemm")


def op_of(case: object) -> str:
    return next(name for name, op in OPS.items() if type(case) is op.case)


def label(case: object) -> str:
    """The name of the op in a table of all that was tried, where float8 has a row of its own."""
    if isinstance(case, scaled.ScaledCase) and case.operand != torch.int8:
        return "scaled_mm of float8 by blocks" if case.block else "scaled_mm of float8"
    if isinstance(case, quantize.QuantizeCase) and case.how.startswith("float8"):
        return "quantize_fp8"
    return op_of(case)


def names() -> dict[str, Any]:
    """The names that ``eval(repr(case))`` needs."""
    return {"torch": torch, **{op.case.__name__: op.case for op in OPS.values()}}


def make(case: object, device: str = "cpu", drawn_on: str = "cpu") -> Any:
    """The problem of a case, its values seeded by what it is."""
    return OPS[op_of(case)].make(case, device, seed_of(case), drawn_on)
