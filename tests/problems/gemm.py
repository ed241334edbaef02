"""Problems of fpA_intB_gemm."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

import mixed_gemm
from mixed_gemm import reference
from mixed_gemm.ops.problem import ACTIVATIONS, num_groups
from mixed_gemm.selection.planning import device_string

from . import verdict
from .covering import Row, Rules
from .lattice import FLOAT, SMOOTH, Sample, int8, integers, powers
from .placing import LEAD_RULES, OF_ACTIVATIONS, PLACES, lead, place, poison_output
from .rows import CUT_GROUP, CUT_K, CUT_M, CUT_N, GEMM_SIZES, HALF, Call, K, N, Op
from .values import Values

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
GROUP_SIZES = (-1, 16, 32, 48, 64, 80, 96, 128, 160, 192, 256)
# The kinds of zero points. sub_real: no whole numbers; sub_mixed: whole in some groups, but not in
# some of their columns; sub_large: larger than the constants of a conversion hold.
ZERO_MODES = ("none", "sub", "sub_real", "sub_mixed", "sub_large", "add")
ROWS = (0, 1, 2, 3, 5, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 129, 257)
COLUMNS = (1, 2, 7, 8, 15, 17, 31, 33, 63, 64, 65, 72, 96, 127, 128, 129, 200, 257, 264, 513)
DEPTHS = (
    0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 48, 63, 64, 65, 77, 80, 127, 128, 129, 193, 257, 320,
    513, 520, 640, 777, 1001, 1024,
)  # fmt: skip
# One factor: a kernel is chosen by both together, so each of these must meet each depth.
SCHEMES = tuple(itertools.product(GROUP_SIZES, ZERO_MODES))
VECTOR_PLACES = ("alone", "guarded", "odd_offset", "every_second_column", "expanded")


@dataclass(frozen=True)
class Case:
    """One problem. ``zero_mode`` as in ZERO_MODES; ``*_place`` as in placing.PLACES."""

    m: int = 3
    n: int = 64
    k: int = 256
    dtype: torch.dtype = torch.float16
    bits: int = 4
    group_size: int = -1
    zero_mode: str = "none"
    bias: bool = False
    pre_scale: bool = False
    activation: str = "identity"
    lead: str = "2d"
    a_place: str = "alone"
    b_place: str = "alone"
    scales_place: str = "alone"
    zeros_place: str = "alone"
    vectors_place: str = "alone"

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        extras = "".join(f"-{name}" for name in ("bias", "pre_scale") if getattr(self, name)) + (
            f"-{self.activation}" if self.activation != "identity" else ""
        )
        return (
            f"m{self.m}n{self.n}k{self.k}-{dtype}-int{self.bits}-g{self.group_size}"
            f"-{self.zero_mode}{extras}"
        )

    @property
    def op_zero_mode(self) -> str:
        """As the op and the planner name it."""
        return self.zero_mode.partition("_")[0]


FACTORS: dict[str, tuple[Any, ...]] = {
    "m": ROWS,
    "n": COLUMNS,
    "k": DEPTHS,
    "dtype": DTYPES,
    "bits": (4, 8),
    "scheme": SCHEMES,
    "bias": (False, True),
    "pre_scale": (False, True),
    "activation": ACTIVATIONS,
    **OF_ACTIVATIONS,
    "b_place": ("alone", "guarded", "odd_offset", "in_wide_rows", "transposed"),
    "scales_place": PLACES,
    "zeros_place": PLACES,
    "vectors_place": VECTOR_PLACES,
}
RULES: Rules = {
    ("k", "scheme"): lambda k, scheme: scheme[0] <= k,
    **LEAD_RULES,
    ("scheme", "zeros_place"): lambda scheme, where: scheme[1] != "none" or where == "alone",
}


def fields_of(row: Row) -> Row:
    """Fields of a case from a row: the scheme as its two."""
    row = dict(row)
    row["group_size"], row["zero_mode"] = row.pop("scheme")
    return row


def from_row(row: Row) -> Case:
    return Case(**fields_of(row))


@dataclass
class Problem(verdict.Remembered):
    """Tensors of a case: what the reference takes, and what the op takes."""

    case: Case
    a: Tensor
    q: Tensor
    scales: Tensor
    zeros: Tensor | None
    bias: Tensor | None
    pre_scale: Tensor | None
    b_packed: Tensor

    def scheme(self) -> dict[str, Any]:
        mode = "add" if self.case.zero_mode == "add" else "sub"
        return {"group_size": self.case.group_size, "zero_mode": mode}

    def extras(self) -> tuple[Tensor | None, ...]:
        return self.scales, self.zeros, self.bias, self.pre_scale

    def run(self, a: Tensor | None = None, config: str | None = None, **changes: Any) -> Tensor:
        """The op's own choice, or a configuration by name, into memory that held NaN."""
        like = self.a if a is None else a
        poison_output((*like.shape[:-1], self.case.n), like)  # freed at once: what the output gets
        return self.call(a, config, **changes)

    def call(self, a: Tensor | None = None, config: str | None = None, **changes: Any) -> Tensor:
        """The same without a kernel of torch before it. ``changes``: other options."""
        op: Callable[..., Tensor] = mixed_gemm.fpA_intB_gemm
        options = {"bits": self.case.bits, "activation": self.case.activation, **self.scheme()}
        if config is not None:
            op = torch.ops.mixed_gemm.fpA_intB_gemm_config
            options["config"] = config
        first = self.a if a is None else a
        return op(first, self.b_packed, *self.extras(), **{**options, **changes})

    def configs(self) -> list[str]:
        """All that the planner lists for this problem on this GPU, and splits that are legal and
        that it does not list."""
        case = self.case
        answer = json.loads(
            torch.ops.mixed_gemm._plan(
                case.m,
                case.n,
                case.k,
                str(case.dtype).removeprefix("torch."),
                case.bits,
                case.group_size,
                case.op_zero_mode,
                device_string(self.a.device),
            )
        )
        assert answer["ok"], answer
        listed = [c["config"] for c in answer["candidates"]]
        plain = [x for x in listed if x.startswith(("multistage", "wgmma")) and x.count("_") == 1]
        streamed = {name.rpartition("_streamk")[0] for name in listed}
        more = [f"{name}_streamk{s}" for name in plain if name in streamed for s in (3, 16)]
        more += [f"{name}_parallel5" for name in plain if case.k > 4 * 128]
        return list(dict.fromkeys(listed + more))

    def oracle(self, a: Tensor | None = None) -> reference.Oracle:
        a = self.a if a is None else a
        options = {**self.scheme(), "activation": self.case.activation}
        return reference.oracle(a, self.q, *self.extras(), **options)

    def verdict(self, out: Tensor, config: str | None = None) -> Tensor:
        """Error over the tighter of the bounds; see reference.oracle."""
        assert out.dtype == self.case.dtype and out.is_contiguous()
        return verdict.worst(out, self.once("oracle", self.oracle))

    def ratio(self, out: Tensor, a: Tensor | None = None) -> float:
        """max |out - exact| / bound; see reference.error_bound."""
        oracle = self.oracle(a)
        return reference.error_ratio(out, oracle.expected, oracle.statistical)


def zero_points(mode: str, bits: int, groups: tuple[int, int], values: Values) -> Tensor | None:
    """float32 ``[G, N]``, or None; ``mode`` as in ZERO_MODES."""
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1)
    if mode == "none":
        return None
    if mode == "add":
        return values.normal(*groups) * 0.1
    if mode == "sub_real":
        return values.normal(*groups) * high / 4
    whole = values.integers(low, high, *groups).float()
    if mode == "sub_mixed":
        whole[1::2] += values.normal(*whole[1::2].shape)
        whole[::3, ::7] += 0.3
    elif mode == "sub_large":
        for column, zero in ((0, 100.0), (1, -300.0), (2, 3000.0), (3, -20000.0)):
            whole[-1:, column::8] = zero
    return whole


def make(case: Case, device: str = "cpu", seed: int = 0, drawn_on: str = "cpu") -> Problem:
    """Random tensors: the same values on every device if ``drawn_on`` is the same."""
    values = Values(device, seed, drawn_on)
    low, high = -(2 ** (case.bits - 1)), 2 ** (case.bits - 1)
    groups = (num_groups(case.k, case.group_size), case.n)

    def put(x: Tensor | None, where: str) -> Any:
        return None if x is None else place(x.to(case.dtype), where)

    q = values.integers(low, high, case.n, case.k, dtype=torch.int8)
    # Negative scales are legal.
    scales = (0.5 + values.uniform(*groups)) * values.signs(*groups) * 0.5 / high
    zeros = zero_points(case.zero_mode, case.bits, groups, values)
    if case.zero_mode == "sub_large":
        scales = scales * 2**-6  # fp16 would overflow
    a = values.normal(case.m, case.k)
    bias = values.normal(case.n) if case.bias else None
    pre_scale = 0.5 + values.uniform(case.k) if case.pre_scale else None
    return Problem(
        case,
        place(lead(a.to(case.dtype), case.lead), case.a_place),
        q,
        put(scales, case.scales_place),
        put(zeros, case.zeros_place),
        put(bias, case.vectors_place),
        put(pre_scale, case.vectors_place),
        place(mixed_gemm.pack_weights(q, case.bits), case.b_place),
    )


def cost(case: Case) -> int:
    return max(case.m, 1) * max(case.n, 1) * max(case.k, 1)


def sample(
    shape: tuple[int, ...] = (2, 40),
    dtype: torch.dtype = FLOAT,
    n: int = 5,
    bits: int = 4,
    group_size: int = 16,
    zero_mode: str = "sub",
    zeros: bool = True,
    bias: bool = True,
    pre_scale: bool = True,
    activation: str = "identity",
) -> Sample:
    k = shape[-1]
    groups = (num_groups(k, group_size), n)
    q = int8(n, k)
    scales = powers(*groups, dtype=dtype)
    z = None
    if zeros:
        z = integers(*groups, dtype=dtype) / (1 if zero_mode == "sub" else 8)
    options = {"group_size": group_size, "zero_mode": zero_mode, "activation": activation}
    before = powers(k, dtype=dtype) * 16 if pre_scale else None

    def exact(a: Tensor, bias: Tensor | None = None) -> Tensor:
        return reference.fpA_intB_gemm(a, q, scales, z, bias, before, **options)

    given = {
        "a": integers(*shape, low=-1, high=1, dtype=dtype),
        "b_packed": mixed_gemm.pack_weights(q, bits),
        "scales": scales,
        "zeros": z,
        "bias": integers(n, dtype=dtype) if bias else None,
        "pre_scale": before,
        "bits": bits,
        **options,
    }
    return Sample("fpA_intB_gemm", given, ("a", "bias") if bias else ("a",), exact)


def sample_config(**sizes: Any) -> Sample:
    """In the configuration that runs on this CPU."""
    given = sample(**sizes).arguments
    (m, k), n = given["a"].shape, given["scales"].shape[1]
    options = {name: given[name] for name in ("bits", "group_size", "zero_mode")}
    plan = mixed_gemm.plan(m, n, k, dtype=given["a"].dtype, device="cpu", **options)
    return Sample("fpA_intB_gemm_config", {**given, "config": plan.selected})


OPS = {
    "fpA_intB_gemm": Op(
        Case, FACTORS, make, cost, RULES, GEMM_SIZES,
        typical=(
            Case(24, 200, 320, HALF, 4, 64, "sub", bias=True, pre_scale=True),
            Case(48, 512, 1024, torch.bfloat16, 4, 128, "sub"),
            Case(1, 65, 777, HALF, 8, 32, "add", activation="gelu"),
        ),
        from_row=from_row,
        forced=True,
    ),
}  # fmt: skip
_SMALL = {"shape": (3, K), "n": N, "dtype": HALF, "group_size": 32, "activation": "silu"}
CALLS = {
    "fpA_intB_gemm": Call(
        sample,
        _SMALL,
        (
            Case(5, 72, 96, torch.float32, 4, 32, "sub", True, True, "silu"),
            Case(5, 72, 96, torch.bfloat16, 8, -1),
        ),
    ),
    "fpA_intB_gemm_config": Call(sample_config, _SMALL),
}
TRAINED = {
    "gemm": sample,
    "gemm symmetric 8 bits": lambda: sample(bits=8, zeros=False, group_size=-1, pre_scale=False),
    "gemm add": lambda: sample(zero_mode="add"),
    "gemm no bias": lambda: sample(bias=False),
    "gemm 1-D": lambda: sample((40,)),
    "gemm 3-D": lambda: sample((2, 1, 40)),
    **{
        f"gemm {activation}": lambda activation=activation: sample(activation=activation)  # type: ignore[misc]
        for activation in ("relu", "relu6", *SMOOTH)
    },
    "gemm gelu no bias": lambda: sample(activation="gelu", bias=False),
}


def _sharded(*rows: int, zeros: bool = True, activation: str = "identity") -> Sample:
    options = {"zeros": zeros, "pre_scale": zeros, "activation": activation}
    return sample((*rows, CUT_K), n=CUT_N, group_size=CUT_GROUP, **options)


SHARDED = {
    "gemm": lambda: _sharded(CUT_M),
    "gemm, symmetric, 3-D": lambda: _sharded(CUT_M, 2, zeros=False),
    # A vector times a matrix has a wrong shape on DTensors (torch 2.13), so without its gradient.
    "gemm, 1-D": lambda: replace(_sharded(), trains=()),
    "gemm, odd rows": lambda: _sharded(5),
    "gemm, one row": lambda: _sharded(1),
    "gemm, relu": lambda: _sharded(CUT_M, activation="relu"),
}
