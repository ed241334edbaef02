"""Weights of integers with scales per channel or group: W4A16 and W8A16."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from ..ops.gemm import unchecked_gemm
from ..ops.layout import dequantize_weights, pack, unpack
from ..ops.problem import check_bits
from .packed import PackedWeight
from .rounding import quantize_weight
from .scheme import Scheme


class IntegerWeight(PackedWeight):
    """``x @ w.T = (x[..., permutation] * pre_scale) @ dequantized.T``.

    Parts:
        b_packed: uint8 ``[round_up(N, 64), round_up(K, 64) * bits / 8]``.
        scales: ``[G, N]``. zeros: ``[G, N]`` or None.
        pre_scale: ``[K]`` or None, multiplies the activations (AWQ, SmoothQuant).
        permutation: int64 ``[K]`` or None: column j of the codes belongs to activation
            permutation[j] (GPTQ act-order).
    """

    kind: ClassVar[str] = "integer"
    gemm: ClassVar[Any] = staticmethod(unchecked_gemm)
    dequantizer: ClassVar[Any] = staticmethod(dequantize_weights)

    @staticmethod
    def pack(q: Tensor, weight: str) -> Tensor:
        return pack(q, weight)

    @classmethod
    def from_float(cls, weight: Tensor, scheme: Scheme) -> IntegerWeight:
        """Round a weight to nearest.

        Args:
            weight: float16, bfloat16 or float32 ``[N, K]``; meta gives meta.
            scheme: weight-only. With zero_mode "sub" zero points are exact integers, with "add"
                they are -zero * scale, rounded to the dtype of the weight.

        Raises:
            ValueError: the scheme does not fit the weight, or a value is NaN or Inf.
            TypeError: the weight has another dtype.
        """
        q, scales, zeros = quantize_weight(
            weight, scheme.bits, scheme.group_size, not scheme.has_zeros
        )
        if zeros is not None and scheme.zero_mode == "add":
            zeros = (-zeros.float() * scales.float()).to(scales.dtype)
        stored = scheme.gemm_options
        mode = "none" if zeros is None else stored["zero_mode"]
        kept = Scheme.weight_only(stored["bits"], stored["group_size"], mode)
        tensors = {"scales": scales, "zeros": zeros}
        # Codes are in range, to which they were clamped.
        return cls._packed(f"mixed_gemm.{cls.__name__}.from_float", q, kept, tensors, in_range=True)

    @classmethod
    def from_quantized(
        cls,
        q: Tensor,
        scales: Tensor,
        zeros: Tensor | None = None,
        pre_scale: Tensor | None = None,
        permutation: Tensor | None = None,
        *,
        bits: int,
        group_size: int = -1,
        zero_mode: str = "sub",
        where: str = "mixed_gemm.IntegerWeight.from_quantized",
    ) -> IntegerWeight:
        """Take integers that are there already, as a checkpoint has them.

        Args:
            q: int8 ``[N, K]``, values in the range of ``bits``.
            scales: ``[G, N]``; its dtype is the weight's.
            zeros: ``[G, N]`` or None (symmetric; ``zero_mode`` is then ignored).
            pre_scale: ``[K]`` or None. permutation: int64 ``[K]`` or None.
            bits: 4 or 8. group_size: elements of K that share a scale, -1 for all.
            zero_mode: "sub" is w = (q - zero) * scale, "add" is w = q * scale + zero.
            where: what an error names.

        Raises:
            ValueError: a scalar is out of range, or a tensor does not fit the rest, has lost its
                storage or holds a value it must not.
            TypeError: ``q`` is not int8.
        """
        check_bits(where, bits)
        scheme = Scheme.weight_only(bits, group_size, "none" if zeros is None else zero_mode)
        tensors = {
            "scales": scales,
            "zeros": zeros,
            "pre_scale": pre_scale,
            "permutation": permutation,
        }
        return cls._packed(where, q, scheme, tensors)

    def _codes(self) -> Tensor:
        n, k = self.shape
        return unpack(self.b_packed, self.scheme.weight_type, n, k)
