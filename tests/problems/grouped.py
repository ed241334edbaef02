"""Problems of grouped_fpA_intB_gemm and grouped_fpA_fpB_gemm."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

import mixed_gemm
from mixed_gemm import reference
from mixed_gemm.ops.problem import num_groups
from mixed_gemm.reference import grouped as reference_grouped
from mixed_gemm.selection.planning import device_string

from . import floats, gemm, verdict
from .covering import Row, Rules
from .lattice import FLOAT, Sample, int8, integers, powers
from .placing import place, place_unchanged, poison_output
from .rows import CUT_GROUP, CUT_K, CUT_N, GEMM_SIZES, HALF, Call, K, N, Op
from .values import Values

EXPERTS = (1, 2, 3, 8, 20)
# How rows are shared out: as evenly as they can be; half of the rest to each expert in order;
# anyhow, which leaves experts without rows; all to the first, to the last or to none; evenly, but
# for a third of the rows, which belong to none.
ROUTINGS = ("even", "skewed", "any", "first", "last", "none", "rows behind")


def ends_of(routing: str, m: int, experts: int, values: Values) -> Tensor:
    """int32 ``[E]``, where the rows of each expert end."""
    index = torch.arange(1, experts + 1)
    ends = {
        "even": lambda: index * m // experts,
        "skewed": lambda: m - m // 2 ** index.clamp(max=40),
        "any": lambda: values.integers(0, m + 1, experts).cpu().sort().values,
        "first": lambda: torch.full((experts,), m),
        "last": lambda: torch.where(index == experts, m, 0),
        "none": lambda: torch.zeros(experts),
        "rows behind": lambda: index * (m - m // 3) // experts,
    }[routing]()
    return ends.to(values.device, torch.int32)


@dataclass(frozen=True)
class GroupedCase:
    """One problem. ``zero_mode`` as in gemm.ZERO_MODES; ``*_place`` as in placing.PLACES."""

    m: int = 24
    n: int = 64
    k: int = 256
    experts: int = 3
    routing: str = "any"
    dtype: torch.dtype = torch.float16
    bits: int = 4
    group_size: int = -1
    zero_mode: str = "none"
    bias: bool = False
    activation: str = "identity"
    a_place: str = "alone"
    b_place: str = "alone"
    scales_place: str = "alone"
    zeros_place: str = "alone"
    vectors_place: str = "alone"


@dataclass(frozen=True)
class GroupedFloatCase:
    """One problem. ``scales`` as in floats.SCALES; ``*_place`` as in placing.PLACES."""

    m: int = 24
    n: int = 64
    k: int = 256
    experts: int = 3
    routing: str = "any"
    dtype: torch.dtype = torch.float16
    weight: str = "e2m1"
    group_size: int = 32
    scales: str = "e8m0"
    factor: bool = True
    bias: bool = False
    activation: str = "identity"
    a_place: str = "alone"
    b_place: str = "alone"
    scales_place: str = "alone"
    vectors_place: str = "alone"


# Fewer sizes than products of one weight have, since a case packs the weight of every expert.
_ROUTED: dict[str, tuple[Any, ...]] = {
    "experts": EXPERTS,
    "routing": ROUTINGS,
    "m": (0, 1, 2, 9, 33, 64, 257),
    "n": (0, 1, 64, 72, 129, 264),
    "k": (0, 16, 33, 64, 129, 320, 777, 1000),
}
_NOT_HERE = ("pre_scale", "lead")
FACTORS: dict[str, tuple[Any, ...]] = {
    **{name: x for name, x in gemm.FACTORS.items() if name not in _NOT_HERE},
    **_ROUTED,
}
FLOAT_FACTORS: dict[str, tuple[Any, ...]] = {
    **{name: x for name, x in floats.FACTORS.items() if name not in _NOT_HERE},
    **_ROUTED,
}
RULES: Rules = {names: rule for names, rule in gemm.RULES.items() if "lead" not in names}
FLOAT_RULES: Rules = {names: rule for names, rule in floats.RULES.items() if "lead" not in names}


@dataclass
class Problem(verdict.Remembered):
    """Tensors of a case: what the reference takes, and what the op takes. third: its zeros or its
    factor."""

    case: Any
    op: str
    a: Tensor
    codes: Tensor
    scales: Tensor
    offs: Tensor
    third: Tensor | None
    bias: Tensor | None
    b_packed: Tensor
    options: dict[str, Any]

    def extras(self) -> tuple[Tensor | None, ...]:
        return self.scales, self.offs, self.third, self.bias

    def run(self, a: Tensor | None = None, config: str | None = None, **changes: Any) -> Tensor:
        """The op's own choice, or a configuration by name, into memory that held NaN."""
        like = self.a if a is None else a
        poison_output((like.shape[0], self.case.n), like)
        return self.call(a, config, **changes)

    def call(self, a: Tensor | None = None, config: str | None = None, **changes: Any) -> Tensor:
        """The same without a kernel of torch before it. ``changes``: other options."""
        op: Callable[..., Tensor] = getattr(mixed_gemm, self.op)
        options = dict(self.options)
        if config is not None:
            op = getattr(torch.ops.mixed_gemm, f"{self.op}_config")
            options["config"] = config
        first = self.a if a is None else a
        return op(first, self.b_packed, *self.extras(), **{**options, **changes})

    def configs(self) -> list[str]:
        """All that the planner lists for this problem on this GPU."""
        case, options = self.case, self.options
        weight = options.get("weight", f"int{options.get('bits')}")
        has_zeros = "bits" in options and self.third is not None
        answer = json.loads(
            torch.ops.mixed_gemm._plan_grouped(
                case.m,
                case.experts,
                case.n,
                case.k,
                str(case.dtype).removeprefix("torch."),
                weight,
                case.group_size,
                options["zero_mode"] if has_zeros else "none",
                device_string(self.a.device),
            )
        )
        assert answer["ok"], answer
        return [c["config"] for c in answer["candidates"]]

    def oracle(self) -> reference.Oracle:
        options = {name: x for name, x in self.options.items() if name != "bits"}
        of = reference_grouped.oracle if "bits" in self.options else reference_grouped.float_oracle
        return of(self.a, self.codes, *self.extras(), **options)

    def verdict(self, out: Tensor, config: str | None = None) -> Tensor:
        """Error over the tighter of the bounds."""
        assert out.dtype == self.case.dtype and out.is_contiguous()
        return verdict.worst(out, self.once("oracle", self.oracle))


def _stacked(experts: int, make: Callable[[], Tensor | None]) -> Any:
    """One of each expert; None where there is none."""
    of_each = [make() for _ in range(experts)]
    return None if of_each[0] is None else torch.stack(of_each)  # type: ignore[arg-type]


def _problem(
    case: Any, op: str, values: Values, codes: Tensor, scales: Tensor, third: Tensor | None,
    pack: Callable[[Tensor], Tensor], options: dict[str, Any],
) -> Problem:  # fmt: skip
    a = values.normal(case.m, case.k)
    if case.dtype == HALF and options.get("weight") == "e4m3":
        a = a / 64  # sums of numbers up to 448 * 1024
    bias = values.normal(case.experts, case.n).to(case.dtype) if case.bias else None
    offs = ends_of(case.routing, case.m, case.experts, values)
    return Problem(
        case,
        op,
        place(a.to(case.dtype), case.a_place),
        codes,
        place(scales.to(case.dtype), case.scales_place),
        place_unchanged(offs, case.vectors_place),
        third,
        None if bias is None else place(bias, case.vectors_place),
        place(torch.stack([pack(x) for x in codes]), case.b_place),
        {"group_size": case.group_size, "activation": case.activation, **options},
    )


def make(case: GroupedCase, device: str = "cpu", seed: int = 0, drawn_on: str = "cpu") -> Problem:
    """Random tensors: the same values on every device if ``drawn_on`` is the same."""
    values = Values(device, seed, drawn_on)
    high = 2 ** (case.bits - 1)
    groups = (num_groups(case.k, case.group_size), case.n)
    q = values.integers(-high, high, case.experts, case.n, case.k, dtype=torch.int8)
    unit = (0.5 + values.uniform(case.experts, *groups)) * 0.5 / high
    scales = unit * values.signs(case.experts, *groups)
    zeros = _stacked(
        case.experts, lambda: gemm.zero_points(case.zero_mode, case.bits, groups, values)
    )
    if case.zero_mode == "sub_large":
        scales = scales * 2**-6  # fp16 would overflow
    mode = "add" if case.zero_mode == "add" else "sub"
    return _problem(
        case, "grouped_fpA_intB_gemm", values, q, scales,
        None if zeros is None else place(zeros.to(case.dtype), case.zeros_place),
        lambda x: mixed_gemm.pack_weights(x, case.bits), {"bits": case.bits, "zero_mode": mode},
    )  # fmt: skip


def make_floats(
    case: GroupedFloatCase, device: str = "cpu", seed: int = 0, drawn_on: str = "cpu"
) -> Problem:
    values = Values(device, seed, drawn_on)
    factor = None
    if case.factor:
        factor = 2 * values.normal(case.experts, case.n)
        factor = place(factor / 64 if case.weight == "e4m3" else factor, case.vectors_place)
    return _problem(
        case, "grouped_fpA_fpB_gemm", values,
        _stacked(case.experts, lambda: floats.codes_of(case, values)),
        _stacked(case.experts, lambda: floats.scales_of(case, values)),
        factor,
        lambda x: mixed_gemm.pack_codes(x, case.weight), {"weight": case.weight},
    )  # fmt: skip


def cost(case: Any) -> int:
    """Of the product; and of packing, and of the reference, which make every expert's weight."""
    return max(case.m, case.experts) * max(case.n, 1) * max(case.k, 1)


def from_row(row: Row) -> GroupedCase:
    return GroupedCase(**gemm.fields_of(row))


# --- rows -----------------------------------------------------------------------------------------


def _ends(m: int, experts: int) -> Tensor:
    """Of the first expert two rows, of others none, of the last all but one of the rest."""
    ends = torch.full((experts,), 2, dtype=torch.int32)
    ends[-1] = m - 1
    return ends


def _sample(
    op: str, product: Callable[..., Tensor], a: Tensor, codes: Tensor, packed: list[Tensor],
    scales: Tensor, third: dict[str, Tensor | None], bias: bool, routed: bool, dtype: torch.dtype,
    options: dict[str, Any],
) -> Sample:  # fmt: skip
    experts, n = codes.shape[:2]
    # Offsets of 0 fit any number of rows.
    offs = _ends(a.shape[0], experts) * routed
    rules = {name: x for name, x in options.items() if name != "bits"}

    def exact(a: Tensor, bias: Tensor | None = None) -> Tensor:
        return product(a, codes, scales, offs, *third.values(), bias, **rules)

    given = {
        "a": a,
        "b_packed": torch.stack(packed),
        "scales": scales,
        "offs": offs,
        **third,
        "bias": integers(experts, n, dtype=dtype) if bias else None,
        **options,
    }
    return Sample(op, given, ("a", "bias") if bias else ("a",), exact)


def sample(
    shape: tuple[int, int] = (6, 40),
    dtype: torch.dtype = FLOAT,
    n: int = 5,
    experts: int = 3,
    bits: int = 4,
    group_size: int = 16,
    zero_mode: str = "sub",
    zeros: bool = True,
    bias: bool = True,
    activation: str = "identity",
    routed: bool = True,
) -> Sample:
    groups = (experts, num_groups(shape[1], group_size), n)
    q = int8(experts, n, shape[1])
    scales = powers(*groups, dtype=dtype)
    z = integers(*groups, dtype=dtype) / (1 if zero_mode == "sub" else 8) if zeros else None
    return _sample(
        "grouped_fpA_intB_gemm", reference_grouped.grouped_fpA_intB_gemm,
        integers(*shape, low=-1, high=1, dtype=dtype), q,
        [mixed_gemm.pack_weights(x, bits) for x in q], scales, {"zeros": z}, bias, routed,
        dtype,
        {"bits": bits, "group_size": group_size, "zero_mode": zero_mode, "activation": activation},
    )  # fmt: skip


def sample_floats(
    shape: tuple[int, int] = (6, 40),
    dtype: torch.dtype = FLOAT,
    n: int = 5,
    experts: int = 3,
    group_size: int = 16,
    factor: bool = True,
    bias: bool = True,
    activation: str = "identity",
    routed: bool = True,
) -> Sample:
    codes = torch.randint(0, 16, (experts, n, shape[1])).to(torch.int8)
    scales = powers(experts, num_groups(shape[1], group_size), n, dtype=dtype)
    times = integers(experts, n, low=1, high=3) if factor else None
    return _sample(
        "grouped_fpA_fpB_gemm", reference_grouped.grouped_fpA_fpB_gemm,
        integers(*shape, low=-1, high=1, dtype=dtype), codes,
        [mixed_gemm.pack_codes(x, "e2m1") for x in codes], scales, {"factor": times}, bias,
        routed, dtype,
        {"weight": "e2m1", "group_size": group_size, "activation": activation},
    )  # fmt: skip


def _forced(of: Callable[..., Sample], **sizes: Any) -> Sample:
    """In the configuration that runs on this CPU."""
    found = of(**sizes)
    config = mixed_gemm.plan(8, 64, 128, dtype=FLOAT, device="cpu").selected
    return replace(
        found, op=f"{found.op}_config", arguments={**found.arguments, "config": config},
        trains=(), exact=None,
    )  # fmt: skip


OPS = {
    "grouped_fpA_intB_gemm": Op(
        GroupedCase, FACTORS, make, cost, RULES, GEMM_SIZES,
        typical=(
            GroupedCase(24, 200, 320, 3, "skewed", HALF, 4, 64, "sub", bias=True),
            GroupedCase(96, 512, 512, 8, "rows behind", torch.bfloat16, 4, 128, "sub"),
            GroupedCase(64, 65, 777, 2, "last", HALF, 8, 32, "add", activation="gelu"),
        ),
        from_row=from_row,
        forced=True,
    ),
    "grouped_fpA_fpB_gemm": Op(
        GroupedFloatCase, FLOAT_FACTORS, make_floats, cost, FLOAT_RULES, GEMM_SIZES,
        typical=(
            GroupedFloatCase(24, 200, 320, 3, "skewed", HALF, bias=True),
            GroupedFloatCase(
                96, 512, 512, 8, "rows behind", torch.bfloat16, group_size=16, scales="e4m3"
            ),
            GroupedFloatCase(64, 65, 777, 2, "last", HALF, activation="gelu"),
        ),
        forced=True,
    ),
}  # fmt: skip
_SMALL = {"shape": (6, K), "n": N, "dtype": HALF, "group_size": 32, "activation": "silu",
          "routed": False}  # fmt: skip
CALLS = {
    "grouped_fpA_intB_gemm": Call(
        sample,
        _SMALL,
        (
            GroupedCase(9, 72, 96, 4, "any", torch.float32, 4, 32, "sub", True, "silu"),
            GroupedCase(9, 72, 96, 3, "rows behind", torch.bfloat16, 8, -1),
        ),
    ),
    "grouped_fpA_intB_gemm_config": Call(lambda **sizes: _forced(sample, **sizes), _SMALL),
    "grouped_fpA_fpB_gemm": Call(
        sample_floats,
        _SMALL,
        (
            GroupedFloatCase(9, 72, 96, 4, "any", torch.float32, bias=True, activation="silu"),
            GroupedFloatCase(9, 72, 96, 3, "last", torch.bfloat16, group_size=16, scales="e4m3"),
        ),
    ),
    "grouped_fpA_fpB_gemm_config": Call(lambda **sizes: _forced(sample_floats, **sizes), _SMALL),
}
TRAINED = {
    "grouped gemm": sample,
    "grouped gemm symmetric 8 bits": lambda: sample(bits=8, zeros=False, group_size=-1),
    "grouped gemm no bias": lambda: sample(bias=False),
    "grouped gemm silu": lambda: sample(activation="silu"),
    "grouped float gemm": sample_floats,
    "grouped float gemm no factor": lambda: sample_floats(factor=False, activation="relu"),
}
SHARDED = {
    "grouped gemm": lambda: sample((6, CUT_K), n=CUT_N, experts=2, group_size=CUT_GROUP),
    "grouped float gemm": lambda: sample_floats(
        (6, CUT_K), n=CUT_N, experts=2, group_size=CUT_GROUP, activation="relu"
    ),
}
