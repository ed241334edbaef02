"""Two tables that Python, GPU and fuzz tests walk. OPS: what computes something, by name, what its
problems turn on and how to make one. CALLS: a small valid call of every public op, and its cases in
tests/smoke.py. An op that is missing here fails test_refusals.py.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from . import (
    awq,
    block,
    conv,
    conv_int8,
    floats,
    gemm,
    lattice,
    quantize,
    scaled,
    scaled_dynamic,
    weights,
)
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


HALF = torch.float16
GEMM_SIZES = {"m": 700, "n": 1500, "k": 4200}
CONV_SIZES = {"in_c": 300, "out_c": 300, "images": 9}

OPS: dict[str, Op] = {
    "fpA_intB_gemm": Op(
        gemm.Case, gemm.FACTORS, gemm.make, gemm.cost, gemm.RULES, GEMM_SIZES, gemm.from_row,
    ),
    "fpA_fpB_gemm": Op(
        floats.Case, floats.FACTORS, floats.make, floats.cost, floats.RULES, GEMM_SIZES,
    ),
    "pack_codes": Op(
        floats.PackCase, floats.PACK_FACTORS, floats.make_pack, _free, {}, {"n": 1500, "k": 4200},
    ),
    "dequantize_codes": Op(
        floats.DequantizeCase, floats.DEQUANTIZE_FACTORS, floats.make_dequantize, _free,
        floats.DEQUANTIZE_RULES, {"n": 1500, "k": 4200},
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
_FLOAT8 = scaled.ScaledCase(48, 512, 1024, torch.bfloat16, torch.float8_e4m3fn)
# Problems for what every kernel must keep (python/support/promises.py): ragged ones with all
# optional tensors, large ones whose work is shared out, and one of each way that an op runs.
TYPICAL: dict[str, tuple[Any, ...]] = {
    "fpA_intB_gemm": (
        gemm.Case(24, 200, 320, HALF, 4, 64, "sub", bias=True, pre_scale=True),
        gemm.Case(48, 512, 1024, torch.bfloat16, 4, 128, "sub"),
        gemm.Case(1, 65, 777, HALF, 8, 32, "add", activation="gelu"),
    ),
    "fpA_fpB_gemm": (
        floats.Case(24, 200, 320, HALF, bias=True, pre_scale=True),
        floats.Case(48, 512, 1024, torch.bfloat16, group_size=16, scales="e4m3"),
        floats.Case(1, 65, 777, HALF, activation="gelu"),
    ),
    "pack_codes": (floats.PackCase(70, 100), floats.PackCase(65, 129, "e4m3")),
    "dequantize_codes": (floats.DequantizeCase(130, 320),),
    "pack_weights": (weights.PackCase(70, 100, 4), weights.PackCase(65, 129, 8)),
    "pack_conv_weights": (weights.PackConvCase(9, 20),),
    "dequantize_weights": (weights.DequantizeCase(130, 320, group_size=32, zero_mode="sub"),),
    "scaled_mm": (
        scaled.ScaledCase(24, 200, 320, azp="per_row", bias=True),
        scaled.ScaledCase(24, 200, 321, azp="folded", column_scales=False),
        scaled.ScaledCase(48, 512, 1024, torch.bfloat16),
        _FLOAT8,
        replace(_FLOAT8, block=(128, 128), bias=True),
    ),
    "scaled_mm_dynamic": (
        scaled_dynamic.ScaledDynamicCase(24, 200, 320, azp=True, bias=True),
        scaled_dynamic.ScaledDynamicCase(1, 512, 1024, torch.bfloat16),
        scaled_dynamic.ScaledDynamicCase(300, 512, 512, torch.bfloat16, azp=True),
    ),
    "quantize": tuple(quantize.QuantizeCase(12, 328, HALF, how) for how in quantize.FACTORS["how"]),
    # Each number of rows has a kernel of its own; the last runs in torch's library.
    "awq": (
        *(awq.AwqCase("gemm", m, 136, 320, 5) for m in (1, 12, 40, 160)),
        awq.AwqCase("dequantize", n=136, k=96, groups=2),
    ),
    "repack": (
        awq.RepackCase(n=72, k=80),
        awq.RepackCase(n=65, k=96, bits=3),
        awq.RepackCase(n=130, k=224, bits=4, permuted=True),
    ),
    "qconv2d": (
        conv.ConvCase(2, 64, 48, (8, 6), block_size=32, offsets=True),
        conv.ConvCase(1, 128, 128, (14, 14), bias=True, activation="relu"),
        conv.ConvCase(2, 64, 64, (8, 8), (1, 1), padding=(0, 0), block_size=32),
    ),
    "qconv2d_int8": (
        conv_int8.ConvInt8Case(2, 17, 33, (9, 7), stride=(2, 1), input_zero_point=37, bias=True),
        conv_int8.ConvInt8Case(1, 64, 64, (14, 14), sums=True),
    ),
    "block_quant_gemm": (
        block.BlockCase(24, 200, 320, block_size=64),
        block.BlockCase(24, 200, 320, block_size=48, sums=True),
        block.BlockCase(48, 512, 1024, torch.bfloat16, 128),
    ),
}
# Those that choose among configurations.
FORCED = (
    "fpA_intB_gemm",
    "fpA_fpB_gemm",
    "scaled_mm",
    "qconv2d",
    "qconv2d_int8",
    "block_quant_gemm",
)


@dataclass(frozen=True)
class Call:
    """``make``: a call on the lattice, of any size. ``small``: what it is asked for in the tests of
    refusals, which change one argument of it; with all optional tensors. ``cases``: what
    tests/smoke.py runs."""

    make: Callable[..., lattice.Sample]
    small: dict[str, Any]
    cases: tuple[Any, ...] = ()

    def of_refusals(self) -> dict[str, Any]:
        return self.make(**self.small).arguments


N, K = 72, 96
_GEMM = {"shape": (3, K), "n": N, "dtype": HALF, "group_size": 32, "activation": "silu"}
_SCALED = {"shape": (3, K), "n": N, "dtype": HALF, "scale_b": (1, N)}
_AWQ = {"k": K, "n": N, "groups": 3, "dtype": HALF}
CALLS: dict[str, Call] = {
    "pack_weights": Call(
        lattice.pack, {"n": N, "k": K}, (weights.PackCase(n=70, k=100, bits=4),),
    ),
    "unpack_weights": Call(lattice.unpack, {"n": N, "k": K}),
    "dequantize_weights": Call(
        lattice.dequantize,
        {"n": N, "k": K, "group_size": 32, "dtype": HALF},
        (weights.DequantizeCase(n=70, k=96, group_size=32, zero_mode="sub"),),
    ),
    "fpA_intB_gemm": Call(
        lattice.gemm,
        _GEMM,
        (
            gemm.Case(5, 72, 96, torch.float32, 4, 32, "sub", True, True, "silu"),
            gemm.Case(5, 72, 96, torch.bfloat16, 8, -1),
        ),
    ),
    "fpA_intB_gemm_config": Call(lattice.gemm_config, _GEMM),
    "fpA_fpB_gemm": Call(
        lattice.float_gemm,
        _GEMM,
        (
            floats.Case(5, 72, 96, torch.float32, bias=True, pre_scale=True, activation="silu"),
            floats.Case(5, 72, 96, torch.bfloat16, group_size=16, scales="e4m3"),
        ),
    ),
    "fpA_fpB_gemm_config": Call(lattice.float_gemm_config, _GEMM),
    "pack_codes": Call(lattice.pack_codes, {"n": N, "k": K}, (floats.PackCase(n=70, k=100),)),
    "unpack_codes": Call(lattice.unpack_codes, {"n": N, "k": K}),
    "dequantize_codes": Call(
        lattice.dequantize_codes,
        {"n": N, "k": K, "group_size": 32, "dtype": HALF},
        (floats.DequantizeCase(n=70, k=96),),
    ),
    "scaled_mm": Call(lattice.scaled, _SCALED, (scaled.ScaledCase(bias=True),)),
    "scaled_mm_azp": Call(lattice.scaled_azp, _SCALED, (scaled.ScaledCase(azp="per_row"),)),
    "scaled_mm_dynamic": Call(
        lattice.scaled_dynamic,
        _SCALED,
        (scaled_dynamic.ScaledDynamicCase(azp=True, bias=True),),
    ),
    "quantize_per_token": Call(
        lattice.quantize_per_token,
        {"shape": (3, K), "symmetric": False},
        (quantize.QuantizeCase(how="asymmetric"),),
    ),
    "quantize_fp8": Call(
        lattice.quantize_fp8,
        {"shape": (3, K), "block_size": 40},
        (quantize.QuantizeCase(how="float8_7"),),
    ),
    "quantize_per_tensor": Call(
        lattice.quantize_per_tensor,
        {"shape": (3, K), "one": (1,)},
        (quantize.QuantizeCase(how="tensor"),),
    ),
    "awq_gemm": Call(
        lattice.awq_gemm, {**_AWQ, "split_k_iters": 2}, (awq.AwqCase("gemm", groups=2),),
    ),
    "awq_dequantize": Call(
        lattice.awq_dequantize, _AWQ, (awq.AwqCase("dequantize", groups=2),),
    ),
    "awq_repack": Call(lattice.awq_repack, {"n": N, "k": K}, (awq.RepackCase(),)),
    "gptq_repack": Call(
        lattice.gptq_repack, {"n": N, "k": K}, (awq.RepackCase(bits=4, permuted=True),),
    ),
    "pack_conv_weights": Call(
        lattice.pack_conv,
        {"channels": 40, "out_c": 24},
        (weights.PackConvCase(out_c=9, in_c=20, bits=8),),
    ),
    "qconv2d": Call(
        lattice.conv,
        {
            "size": (5, 6), "channels": 40, "out_c": 24, "images": 2, "dtype": HALF,
            "activation": "relu", "stride": [1, 2], "padding": [1, 0], "dilation": [1, 1],
        },
        (conv.ConvCase(block_size=16, offsets=True, bias=True, activation="relu"),),
    ),
    "qconv2d_int8": Call(
        lattice.conv_int8,
        {
            "channels": 6, "out_c": 8, "scales": 8, "sums": True,
            "clamp_min": -100, "clamp_max": 100,
            "stride": [1, 1], "padding": [1, 1], "dilation": [1, 1],
        },
        (conv_int8.ConvInt8Case(input_zero_point=17, bias=True),),
    ),
    "block_quant_gemm": Call(
        lattice.block_gemm,
        {"shape": (3, K), "n": N, "block": 32, "activation": "relu", "sums": True},
        (block.BlockCase(),),
    ),
}  # fmt: skip


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
