"""The one generator of test problems. It yields valid combinations only; invalid ones are written
out in test_errors.py with the text they must raise.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

import mixed_gemm
from mixed_gemm import reference
from mixed_gemm.scheme import ACTIVATIONS, num_groups

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
GROUP_SIZES = (-1, 16, 32, 48, 64, 128, 256)  # 48: a multiple of 16 that is no power of two
ZERO_MODES = ("none", "sub", "sub_real", "add")  # sub_real: zero points that are not integers


@dataclass(frozen=True)
class Case:
    """One problem. ``zero_mode`` as in ZERO_MODES."""

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

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        extras = "".join(f"-{name}" for name in ("bias", "pre_scale") if getattr(self, name)) + (
            f"-{self.activation}" if self.activation != "identity" else ""
        )
        return (
            f"m{self.m}n{self.n}k{self.k}-{dtype}-int{self.bits}-g{self.group_size}"
            f"-{self.zero_mode}{extras}"
        )


@dataclass
class Problem:
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

    def run(self, a: Tensor | None = None, **options: Any) -> Tensor:
        return mixed_gemm.fpA_intB_gemm(
            self.a if a is None else a,
            self.b_packed,
            *self.extras(),
            bits=self.case.bits,
            activation=self.case.activation,
            **self.scheme(),
            **options,
        )

    def ratio(self, out: Tensor, a: Tensor | None = None) -> float:
        """max |out - exact| / bound; see reference.error_bound."""
        a = self.a if a is None else a
        options = {**self.scheme(), "activation": self.case.activation}
        expected = reference.fpA_intB_gemm(a, self.q, *self.extras(), **options)
        bound = reference.error_bound(a, self.q, *self.extras(), **options)
        return reference.error_ratio(out, expected, bound)


def make(case: Case, device: str = "cpu", seed: int = 0) -> Problem:
    """Random tensors: the same values on every device."""
    g = torch.Generator().manual_seed(seed)
    low, high = -(2 ** (case.bits - 1)), 2 ** (case.bits - 1)
    groups = (num_groups(case.k, case.group_size), case.n)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g)

    q = torch.randint(low, high, (case.n, case.k), generator=g, dtype=torch.int8)
    sign = torch.randint(0, 2, groups, generator=g) * 2 - 1  # negative scales are legal
    scales = (0.5 + torch.rand(groups, generator=g)) * sign * 0.5 / high
    zeros = {
        "none": None,
        "sub": torch.randint(low, high, groups, generator=g).float(),
        "sub_real": normal(*groups) * high / 4,
        "add": normal(*groups) * 0.1,
    }[case.zero_mode]

    def place(x: Tensor | None) -> Tensor | None:
        return None if x is None else x.to(case.dtype).to(device)

    q = q.to(device)
    return Problem(
        case,
        place(normal(case.m, case.k)),  # type: ignore[arg-type]
        q,
        place(scales),  # type: ignore[arg-type]
        place(zeros),
        place(normal(case.n)) if case.bias else None,
        place(0.5 + torch.rand(case.k, generator=g)) if case.pre_scale else None,
        mixed_gemm.pack_weights(q, case.bits),
    )


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
