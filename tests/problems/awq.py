"""Problems of the ops that read checkpoint tensors: awq_gemm, awq_dequantize, awq_repack and
gptq_repack. The packers are written from the formats, a code at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import mixed_gemm
from mixed_gemm import reference

from . import verdict
from .covering import Rules
from .gemm import DTYPES, ROWS
from .lattice import FLOAT, Sample, int32, integers, powers
from .placing import LEAD_RULES, OF_ACTIVATIONS, PLACES, lead, place, poison_output
from .rows import CUT_K, CUT_M, CUT_N, HALF, Call, K, N, Op, cost_of_packing
from .values import Values

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # column in each nibble, lowest bits first
WORD_PLACES = PLACES[:-1]


def to_int32(words: Tensor) -> Tensor:
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def awq_words(codes: Tensor) -> Tensor:
    """int64 codes ``[rows, N]`` -> int32 ``[rows, N / 8]``."""
    octets = codes.view(codes.shape[0], codes.shape[1] // 8, 8)[:, :, AWQ_ORDER]
    return to_int32((octets << (4 * torch.arange(8, device=codes.device))).sum(-1))


def gptq_words(codes: Tensor, bits: int) -> Tensor:
    """int64 codes ``[K, N]`` -> int32 ``[K * bits / 32, N]``, one bit stream a column."""
    k, n = codes.shape
    shifts = torch.arange(32, device=codes.device)
    stream = ((codes.unsqueeze(1) >> shifts[:bits].view(1, bits, 1)) & 1).reshape(-1, 32, n)
    assert stream.numel() == k * bits * n
    return to_int32((stream << shifts.view(1, 32, 1)).sum(1))


# --- products and dense weights -----------------------------------------------------------------


@dataclass(frozen=True)
class AwqCase:
    """``op``: the product, or the dense weight. ``groups`` of K / groups each."""

    op: str = "gemm"
    m: int = 3
    n: int = 64
    k: int = 128
    groups: int = 1
    dtype: torch.dtype = torch.float16
    split_k_iters: int = 1
    lead: str = "2d"
    a_place: str = "alone"
    q_place: str = "alone"
    scales_place: str = "alone"
    zeros_place: str = "alone"

    @property
    def group_size(self) -> int:
        return -1 if self.groups == 1 else self.k // self.groups


DEPTHS = (
    1, 2, 7, 8, 15, 16, 17, 30, 31, 32, 33, 48, 63, 64, 65, 77, 80, 96, 128, 129, 144, 160, 192,
    257, 320, 384, 512, 640, 777, 960, 1024,
)  # fmt: skip
FACTORS: dict[str, tuple[Any, ...]] = {
    "op": ("gemm", "dequantize"),
    "m": ROWS,
    "n": (0, 8, 16, 24, 56, 64, 72, 120, 128, 136, 256, 264, 520),
    "k": DEPTHS,
    "groups": (1, 2, 3, 4, 5, 6, 8, 12, 20, 64),
    "dtype": DTYPES,
    "split_k_iters": (1, 2, 8, 32),
    **OF_ACTIVATIONS,
    "q_place": WORD_PLACES,
    "scales_place": PLACES,
    "zeros_place": WORD_PLACES,
}  # fmt: skip
RULES: Rules = {
    **LEAD_RULES,
    ("k", "groups"): lambda k, groups: groups == 1 or k % (16 * groups) == 0,
}


@dataclass
class AwqProblem:
    """``q`` and ``zeros`` are what ``reference`` takes: signed, ``[N, K]``."""

    case: AwqCase
    a: Tensor
    qweight: Tensor
    scales: Tensor
    qzeros: Tensor
    q: Tensor
    zeros: Tensor

    def run(self, config: str | None = None) -> Tensor:
        case = self.case
        if case.op == "dequantize":
            poison_output((case.k, case.n), self.scales)
            return mixed_gemm.awq_dequantize(self.qweight, self.scales, self.qzeros)
        poison_output((*self.a.shape[:-1], case.n), self.a)
        return mixed_gemm.awq_gemm(
            self.a, self.qweight, self.scales, self.qzeros, case.split_k_iters
        )

    def configs(self) -> list[str]:
        return []

    def verdict(self, out: Tensor, config: str | None = None) -> Tensor:
        assert out.dtype == self.case.dtype and out.is_contiguous()
        scheme = {"group_size": self.case.group_size}
        if self.case.op == "gemm":
            oracle = reference.oracle(self.a, self.q, self.scales, self.zeros, **scheme)
            return verdict.worst(out, oracle)
        # At most 5 by 11 bits, or by 24 in float32, where the one rounding is that of the product.
        w = reference.dequantize(self.q, self.scales, self.zeros, **scheme)
        return verdict.exact(out, w.t().to(self.case.dtype))


def make(case: AwqCase, device: str = "cpu", seed: int = 0, drawn_on: str = "cpu") -> AwqProblem:
    values = Values(device, seed, drawn_on)
    codes = values.integers(0, 16, case.k, case.n)
    zeros = values.integers(0, 16, case.groups, case.n)
    scales = (0.5 + values.uniform(case.groups, case.n)) / 16
    a = values.normal(case.m, case.k).to(case.dtype)
    return AwqProblem(
        case,
        place(lead(a, case.lead), case.a_place),
        place(awq_words(codes), case.q_place),
        place(scales.to(case.dtype), case.scales_place),
        place(awq_words(zeros), case.zeros_place),
        (codes - 8).t().to(torch.int8),
        (zeros - 8).to(case.dtype),
    )


def cost(case: AwqCase) -> int:
    return max(case.m, 1) * max(case.n, 1) * case.k


# --- repacking ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class RepackCase:
    """``bits`` 0 is AutoAWQ, the rest GPTQ."""

    n: int = 64
    k: int = 128
    bits: int = 0
    permuted: bool = False
    q_place: str = "alone"
    perm_place: str = "alone"


REPACK_FACTORS: dict[str, tuple[Any, ...]] = {
    "n": (1, 7, 8, 16, 24, 33, 63, 64, 65, 72, 128, 129, 136, 264),
    "k": (1, 4, 7, 8, 16, 24, 31, 32, 33, 60, 64, 65, 96, 128, 160, 257, 512, 544),
    "bits": (0, 2, 3, 4, 8),
    "permuted": (False, True),
    "q_place": PLACES[:-1],
    "perm_place": ("alone", "guarded", "odd_offset", "every_second_column"),
}
REPACK_RULES: Rules = {
    ("n", "bits"): lambda n, bits: bits > 0 or n % 8 == 0,
    ("k", "bits"): lambda k, bits: bits == 0 or k % {2: 16, 3: 32, 4: 8, 8: 4}[bits] == 0,
    ("bits", "permuted"): lambda bits, permuted: bits > 0 or not permuted,
    # The pairs that follow from the three above: GPTQ words hold whole multiples of 4 along K.
    ("k", "permuted"): lambda k, permuted: not permuted or k % 4 == 0,
    ("n", "k"): lambda n, k: n % 8 == 0 or k % 4 == 0,
}


@dataclass
class RepackProblem:
    case: RepackCase
    qweight: Tensor
    perm: Tensor | None
    q: Tensor

    def run(self, config: str | None = None) -> Tensor:
        if self.case.bits == 0:
            return mixed_gemm.ops.awq_repack(self.qweight)
        return mixed_gemm.ops.gptq_repack(self.qweight, self.perm, bits=self.case.bits)

    def configs(self) -> list[str]:
        return []

    def verdict(self, out: Tensor, config: str | None = None) -> Tensor:
        packed_bits = 8 if self.case.bits == 8 else 4
        return verdict.exact(out, mixed_gemm.pack_weights(self.q, packed_bits))


def make_repack(
    case: RepackCase, device: str = "cpu", seed: int = 0, drawn_on: str = "cpu"
) -> RepackProblem:
    values = Values(device, seed, drawn_on)
    bits = case.bits or 4
    codes = values.integers(0, 2**bits, case.k, case.n)
    words = awq_words(codes) if case.bits == 0 else gptq_words(codes, bits)
    q, perm = (codes - 2 ** (bits - 1)).t().to(torch.int8), None
    if case.permuted:
        order = values.permutation(case.k)
        q, perm = q[:, order], place(order.to(torch.int32), case.perm_place)
    return RepackProblem(case, place(words, case.q_place), perm, q.contiguous())


def _awq_weight(
    k: int, n: int, groups: int, dtype: torch.dtype
) -> tuple[dict[str, Any], Callable[[Tensor], Tensor]]:
    """The arguments, and the dense weight of its scales in float64."""
    codes, zeros = torch.randint(5, 12, (k, n)), torch.randint(7, 10, (groups, n))
    scales = powers(groups, n, dtype=dtype)
    weight = {"qweight": awq_words(codes), "scales": scales, "qzeros": awq_words(zeros)}
    integer = (codes.reshape(groups, -1, n) - zeros.unsqueeze(1)).double()
    return weight, lambda scales: (integer * scales.unsqueeze(1)).reshape(k, n)


def sample_dequantize(
    k: int = 32, n: int = 8, groups: int = 2, dtype: torch.dtype = FLOAT
) -> Sample:
    weight, dense = _awq_weight(k, n, groups, dtype)
    return Sample("awq_dequantize", weight, ("scales",), dense)


def sample_gemm(
    m: int = 3,
    k: int = 32,
    n: int = 8,
    groups: int = 2,
    dtype: torch.dtype = FLOAT,
    split_k_iters: int = 1,
) -> Sample:
    weight, dense = _awq_weight(k, n, groups, dtype)
    a = integers(m, k, low=-1, high=1, dtype=dtype)
    given = {"input": a, **weight, "split_k_iters": split_k_iters}
    exact = dense(weight["scales"].double())
    return Sample("awq_gemm", given, ("input",), lambda input: input @ exact)


def sample_awq_repack(k: int = 32, n: int = 8) -> Sample:
    return Sample("awq_repack", {"qweight": int32(k, n // 8)})


def sample_gptq_repack(k: int = 64, n: int = 24) -> Sample:
    order = torch.randperm(k).to(torch.int32)
    return Sample("gptq_repack", {"qweight": int32(k // 8, n), "perm": order, "bits": 4})


OPS = {
    "awq": Op(
        AwqCase, FACTORS, make, cost, RULES, {"m": 700},
        typical=(
            *(AwqCase("gemm", m, 136, 320, 5) for m in (1, 12, 40, 160)),
            AwqCase("dequantize", n=136, k=96, groups=2),
        ),
    ),
    "repack": Op(
        RepackCase, REPACK_FACTORS, make_repack, cost_of_packing, REPACK_RULES, {},
        typical=(
            RepackCase(n=72, k=80),
            RepackCase(n=65, k=96, bits=3),
            RepackCase(n=130, k=224, bits=4, permuted=True),
        ),
    ),
}  # fmt: skip
_SMALL = {"k": K, "n": N, "groups": 3, "dtype": HALF}
CALLS = {
    "awq_gemm": Call(sample_gemm, {**_SMALL, "split_k_iters": 2}, (AwqCase("gemm", groups=2),)),
    "awq_dequantize": Call(sample_dequantize, _SMALL, (AwqCase("dequantize", groups=2),)),
    "awq_repack": Call(sample_awq_repack, {"n": N, "k": K}, (RepackCase(),)),
    "gptq_repack": Call(sample_gptq_repack, {"n": N, "k": K}, (RepackCase(bits=4, permuted=True),)),
}
TRAINED = {
    "awq_gemm": sample_gemm,
    "awq_dequantize": sample_dequantize,
}
SHARDED = {
    "awq_gemm": lambda: sample_gemm(CUT_M, CUT_K, CUT_N),
    "awq_dequantize": lambda: sample_dequantize(CUT_K, CUT_N),
    "awq_repack": lambda: sample_awq_repack(CUT_K, CUT_N),
    "gptq_repack": lambda: sample_gptq_repack(CUT_K, CUT_N),
}
