"""Problems of block_quant_gemm."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import mixed_gemm
from mixed_gemm import reference
from mixed_gemm.ops.problem import ACTIVATIONS, num_groups
from mixed_gemm.reference import conv as reference_conv
from mixed_gemm.selection.planning import device_string

from . import verdict
from .covering import Row, Rules
from .gemm import COLUMNS, DTYPES, ROWS, VECTOR_PLACES
from .lattice import Sample, full_range, int8, integers, powers
from .placing import (
    LEAD_RULES,
    OF_ACTIVATIONS,
    PLACES,
    PLACES_OF_ROWS,
    lead,
    place,
    place_unchanged,
    poison_output,
)
from .rows import CUT_GROUP, CUT_K, CUT_M, CUT_N, GEMM_SIZES, Call, K, N, Op
from .values import Values


@dataclass(frozen=True)
class BlockCase:
    m: int = 5
    n: int = 40
    k: int = 160
    dtype: torch.dtype = torch.float16
    block_size: int = 64
    offsets: bool = True
    bias: bool = True
    activation: str = "identity"
    lead: str = "2d"
    a_place: str = "alone"
    b_place: str = "alone"
    scales_place: str = "alone"
    vectors_place: str = "alone"
    sums: bool = False

    def __str__(self) -> str:
        shown = list(vars(self).values())[:8]
        return "-".join(str(x).removeprefix("torch.") for x in shown)


FACTORS: dict[str, tuple[Any, ...]] = {
    "m": ROWS,
    "n": (0, *COLUMNS),
    "k": (
        0, 1, 2, 7, 8, 15, 16, 17, 31, 33, 48, 63, 64, 65, 100, 127, 128, 129, 257, 320, 513, 777,
        1001, 1024,
    ),
    "dtype": DTYPES,
    "scheme": tuple(itertools.product((-1, 16, 32, 48, 64, 80, 128, 256), (False, True))),
    "bias": (False, True),
    "activation": ACTIVATIONS,
    **OF_ACTIVATIONS,
    "b_place": PLACES_OF_ROWS,
    "scales_place": PLACES,
    "vectors_place": VECTOR_PLACES,
    "sums": (False, True),
}  # fmt: skip
RULES: Rules = {
    **LEAD_RULES,
    ("k", "scheme"): lambda k, scheme: scheme[0] <= k,
}


def from_row(row: Row) -> BlockCase:
    fields = dict(row)
    block_size, offsets = fields.pop("scheme")
    return BlockCase(**fields, block_size=block_size, offsets=offsets)


NAMES = ("a", "b", "scale_b", "offset_b", "bias")  # of the tensors that the op takes


@dataclass
class BlockProblem(verdict.Remembered):
    case: BlockCase
    a: Tensor
    weight: Tensor  # [N, K]
    scale_b: Tensor
    offset_b: Tensor
    bias: Tensor | None
    b_sums: Tensor | None

    def arguments(self) -> tuple[Any, ...]:
        return self.a, self.weight.t(), self.scale_b, self.offset_b, self.bias

    def options(self) -> dict[str, Any]:
        case = self.case
        return {
            "block_size": case.block_size, "activation": case.activation, "b_sums": self.b_sums
        }  # fmt: skip

    def sums(self) -> Tensor:
        """The b_sums of the weight as it is now."""
        return sums_of(self.weight, self.case.block_size)

    def run(self, a: Tensor | None = None, config: str | None = None, **changes: Any) -> Tensor:
        """The op's own choice, or a configuration by name, into memory that held NaN. ``changes``:
        other arguments than those of the problem, by name."""
        arguments = {**dict(zip(NAMES, self.arguments(), strict=True)), **self.options(), **changes}
        if a is not None:
            arguments["a"] = a
        poison_output((*arguments["a"].shape[:-1], arguments["b"].shape[1]), self.a)
        if config is None:
            return mixed_gemm.block_quant_gemm(**arguments)
        return torch.ops.mixed_gemm._block_quant_gemm_config(**arguments, config=config)

    def configs(self) -> list[str]:
        return configs_of(self.case, self.a.device)

    def verdict(self, out: Tensor, config: str | None = None) -> Tensor:
        assert out.dtype == self.case.dtype and out.is_contiguous()
        return verdict.ratio(out, *self.once("oracle", self.oracle))

    def oracle(self) -> tuple[Tensor, Tensor]:
        return reference_conv.block_oracle(*self.arguments(), **self.options())

    def ratio(self, out: Tensor) -> float:
        assert out.dtype == self.case.dtype
        return reference.error_ratio(out, *self.oracle())


def configs_of(case: BlockCase, device: torch.device | str) -> list[str]:
    """All that the planner lists, and splits that are legal and that it does not list: an odd
    number of slices, and more workers of stream-K than the GPU holds at once."""
    ask = torch.ops.mixed_gemm._plan_block_quant_gemm
    answer = json.loads(ask(case.m, case.n, case.k, case.block_size, device_string(device)))
    assert answer["ok"], answer
    listed = [c["config"] for c in answer["candidates"]]
    plain = [name for name in listed if name.count("_") == 1]
    more = [f"{name}_streamk{s}" for name in plain for s in (3, 16) if case.k > 0]
    more += [f"{name}_cluster3" for name in plain if f"{name}_cluster4" in listed]
    return list(dict.fromkeys(listed + more))


def make(
    case: BlockCase, device: str = "cpu", seed: int = 0, drawn_on: str = "cpu"
) -> BlockProblem:
    """Random tensors: the same values on every device if ``drawn_on`` is the same."""
    values = Values(device, seed, drawn_on)
    groups = (num_groups(case.k, case.block_size), case.n)
    weight = values.integers(-128, 128, case.n, case.k, dtype=torch.int8)
    scale = (0.5 + values.uniform(*groups)) / 128
    offset = values.normal(*groups) * 0.1 if case.offsets else torch.zeros_like(scale)
    # Rows that are shifted and scaled, so that blocks have ranges of their own.
    a = values.normal(case.m, case.k) * (1 + values.normal(case.m, 1)) + values.normal(case.m, 1)
    bias = None
    if case.bias:
        bias = place(values.normal(case.n).to(case.dtype), case.vectors_place)
    problem = BlockProblem(
        case,
        place(lead(a.to(case.dtype), case.lead), case.a_place),
        place(weight, case.b_place),
        place(scale.to(case.dtype), case.scales_place),
        place(offset.to(case.dtype), case.scales_place),
        bias,
        None,
    )
    if case.sums:
        problem.b_sums = place_unchanged(problem.sums(), case.scales_place)
    return problem


def sums_of(weight: Tensor, block_size: int) -> Tensor:
    """int32 ``[ceil(K / block_size), N]`` of a weight ``[N, K]``, a block at a time."""
    n, k = weight.shape
    size = max(k, 1) if block_size == -1 else block_size
    blocks = [part.double().sum(1) for part in weight.split(size, dim=1) if k > 0]
    return torch.stack(blocks).int() if blocks else weight.new_zeros((0, n), dtype=torch.int32)


def cost(case: BlockCase) -> int:
    return max(case.m, 1) * max(case.n, 1) * max(case.k, 1)


def sample(
    shape: tuple[int, ...] = (2, 40),
    n: int = 5,
    block: int = 16,
    bias: bool = True,
    activation: str = "identity",
    sums: bool = False,
) -> Sample:
    groups = (num_groups(shape[-1], block), n)
    b = int8(n, shape[-1], most=2).t()
    scale, offset = powers(*groups) / 8, integers(*groups) / 64

    def exact(a: Tensor, bias: Tensor | None = None) -> Tensor:
        w = reference.dequantize(b.t(), scale, offset, group_size=block, zero_mode="add")
        y = a @ w.t() if bias is None else a @ w.t() + bias
        return reference.ACTIVATION_TABLE[activation][0](y)

    given = {
        "a": full_range(*shape, block=block),
        "b": b,
        "scale_b": scale,
        "offset_b": offset,
        "bias": integers(n) if bias else None,
        **({"b_sums": mixed_gemm.ops.block_sums(b, block)} if sums else {}),
        "block_size": block,
        "activation": activation,
    }
    return Sample("block_quant_gemm", given, ("a", "bias") if bias else ("a",), exact)


OPS = {
    "block_quant_gemm": Op(
        BlockCase, FACTORS, make, cost, RULES, GEMM_SIZES,
        typical=(
            BlockCase(24, 200, 320, block_size=64),
            BlockCase(24, 200, 320, block_size=48, sums=True),
            BlockCase(48, 512, 1024, torch.bfloat16, 128),
        ),
        from_row=from_row,
        forced=True,
    ),
}  # fmt: skip
CALLS = {
    "block_quant_gemm": Call(
        sample,
        {"shape": (3, K), "n": N, "block": 32, "activation": "relu", "sums": True},
        (BlockCase(),),
    ),
}
TRAINED = {
    "block": sample,
    "block 1-D": lambda: sample((40,)),
    "block no bias": lambda: sample(bias=False),
    "block relu6": lambda: sample(activation="relu6"),
    "block gelu": lambda: sample(activation="gelu"),
}


def _sharded(activation: str = "identity") -> Sample:
    return sample((CUT_M, CUT_K), CUT_N, CUT_GROUP, activation=activation, sums=True)


SHARDED = {
    "block_quant_gemm": _sharded,
    "block_quant_gemm, no bias": lambda: _sharded().without("bias"),
    "block_quant_gemm, no bias, relu": lambda: _sharded("relu").without("bias"),
}
