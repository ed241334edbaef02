"""Weights of codes that stand for any 16 numbers, by a book: NF4 and FP4 of bitsandbytes."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ..ops.floats import dequantize_codes, gemm_of_weight, pack_codes, unpack_codes
from . import question
from .codes import nearest_codes
from .packed import PackedWeight
from .question import Question
from .rounding import checked_dense, groups_of
from .row_blocks import by_rows
from .scheme import Scheme
from .tensor import Part

_LEAST = 1e-38  # bitsandbytes divides by no smaller magnitude


class BookWeight(PackedWeight):
    """``x @ w.T = (x * pre_scale) @ dequantized.T``, w[n, k] = book[code] * scales[k / group, n].

    A scale is the largest magnitude of its group (bitsandbytes: absmax), rounded once to the dtype
    of the activations, by at most 2^-9 of it in bfloat16 and 2^-12 in float16. On a GPU the numbers
    of the book are rounded so as well.

    Parts:
        b_packed: uint8 ``[round_up(N, 64), round_up(K, 64) / 2]``.
        scales: ``[G, N]``.
        pre_scale: ``[K]`` or None, multiplies the activations.
        permutation: int64 ``[K]`` or None, as of ``PackedWeight``.
    """

    kind: ClassVar[str] = "book"
    weight_types: ClassVar[tuple[str, ...]] = ("nf4", "fp4")
    parts: ClassVar[tuple[Part, ...]] = (
        Part("b_packed", (torch.uint8,), follows=False, finite=False, rows=0),
        Part("scales", rows=1),
        Part("pre_scale"),
        Part("permutation", (torch.int64,), follows=False, finite=False),
    )
    gemm: ClassVar[Any] = staticmethod(gemm_of_weight)
    dequantizer: ClassVar[Any] = staticmethod(dequantize_codes)
    beside_scales: ClassVar[str] = "factor"
    factor: ClassVar[None] = None
    zeros: ClassVar[None] = None  # type: ignore[misc]

    def question(self, m: int, out: str, where: str) -> Question:
        """As of the base class, of ``fpA_fpB_gemm``.

        Args:
            m: rows of the activations. out: the dtype of the result. where: the device.
        """
        n, k = self.shape
        weight, size = self.scheme.weight_type, self.scheme.group_size
        return question.codes(m, n, k, out, weight, size, where)

    @classmethod
    def present(cls, scheme: Scheme) -> set[str]:
        return {"b_packed", "scales"}

    @staticmethod
    def pack(q: Tensor, weight: str) -> Tensor:
        return pack_codes(q, weight)

    @classmethod
    def from_float(cls, weight: Tensor, scheme: Scheme) -> BookWeight:
        """Round a weight as bitsandbytes does: to the nearest number of the book times the largest
        magnitude of the group, a tie to the lower one.

        Args:
            weight: float16, bfloat16 or float32 ``[N, K]``; meta gives meta.
            scheme: "nf4" or "fp4" of ``SCHEMES``, perhaps with other groups.

        Raises:
            ValueError: the scheme does not fit the weight, or a value is NaN or Inf.
            TypeError: the weight has another dtype.
        """
        where = "mixed_gemm.BookWeight.from_float"
        weight = checked_dense(where, weight, ("N", "K"))
        cls.check_group(where, scheme.group_size, weight.shape[1])
        if weight.is_meta:
            return cls.empty(tuple(weight.shape), scheme, device="meta", dtype=weight.dtype)

        def rounded(rows: Tensor) -> tuple[Tensor, Tensor]:
            x = groups_of(rows, scheme.group_size)
            largest = x.abs().amax(-1, keepdim=True)
            scaled = (x * (1 / largest.clamp(min=_LEAST))).clamp(-1, 1)
            codes = nearest_codes(scaled, scheme.weight_type).flatten(1)[:, : rows.shape[1]]
            return codes.contiguous(), largest.squeeze(-1).to(rows.dtype)

        q, scales = by_rows(rounded, weight)
        tensors = {"scales": scales.t().contiguous()}
        return cls._packed(where, q, scheme, tensors, in_range=True)

    def _codes(self) -> Tensor:
        n, k = self.shape
        return unpack_codes(self.b_packed, self.scheme.weight_type, n, k)
