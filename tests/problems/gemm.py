"""Problems of fpA_intB_gemm."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import mixed_gemm
from mixed_gemm import reference
from mixed_gemm.ops.problem import ACTIVATIONS, num_groups
from mixed_gemm.selection.planning import device_string

from . import verdict
from .covering import Row, Rules
from .placing import LEAD_RULES, OF_ACTIVATIONS, PLACES, lead, place, poison_output
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
