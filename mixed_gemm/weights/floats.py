"""Weights of packed floats with scales per channel or group."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ..ops.floats import dequantize_floats, gemm_of_weight, pack_floats, unpack_floats
from ..ops.problem import WEIGHTS, integer_options
from .codes import nearest_codes
from .packed import PackedWeight
from .rounding import checked_dense, groups_of, nonzero_scale
from .scheme import Scheme


class FloatWeight(PackedWeight):
    """``x @ w.T = (x[..., permutation] * pre_scale) @ dequantized.T``, as of ``PackedWeight``."""

    kind: ClassVar[str] = "float"
    weight_types: ClassVar[tuple[str, ...]] = ("e2m1",)
    gemm: ClassVar[Any] = staticmethod(gemm_of_weight)

    @staticmethod
    def pack(q: Tensor, weight: str) -> Tensor:
        return pack_floats(q, **integer_options(weight))

    @classmethod
    def from_float(cls, weight: Tensor, scheme: Scheme) -> FloatWeight:
        """Round a weight to nearest: the largest magnitude of a group becomes the largest number.

        Args:
            weight: float16, bfloat16 or float32 ``[N, K]``. scheme: that this kind stores.
        """
        where = "mixed_gemm.FloatWeight.from_float"
        weight = checked_dense(where, weight, ("N", "K"))
        (n, k), x = weight.shape, groups_of(weight, scheme.group_size)
        largest = max(WEIGHTS[scheme.weight_type].values)
        scale = nonzero_scale(x.abs().amax(-1, keepdim=True) / largest, weight.dtype)
        q = nearest_codes(x / scale, scheme.weight_type).reshape(n, -1)[:, :k].contiguous()
        scales = scale.squeeze(-1).t().contiguous().to(weight.dtype)
        return cls._packed(where, q, scheme, {"scales": scales}, in_range=True)

    def _codes(self) -> Tensor:
        n, k = self.shape
        return unpack_floats(self.b_packed, n=n, k=k, **integer_options(self.scheme.weight_type))

    def _dense(self, dtype: torch.dtype) -> Tensor:
        n, k = self.shape
        options = self.scheme.gemm_options
        return dequantize_floats(self.b_packed, self.scales, **options, n=n, k=k, dtype=dtype)
