"""Weights of floats of 4 bits with scales of a byte: MXFP4 and NVFP4."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ..ops.errors import ArgumentValueError, dtype_name
from ..ops.floats import dequantize_codes, gemm_of_weight, pack_codes, unpack_codes
from . import question
from .exchange import QuantizedWeight
from .float_scales import file_scales, stored_scales
from .packed import PackedWeight
from .question import Question
from .rounding import checked_dense
from .rounding_float4 import round_float4
from .scheme import Scheme
from .tensor import Part


class FloatWeight(PackedWeight):
    """``x @ w.T = (x * pre_scale) @ dequantized.T``, w[n, k] = code * scales[k / group, n] *
    factor[n], of codes "e2m1".

    A scale of a file, a power of two (MXFP4) or a float8_e4m3fn number (NVFP4), is stored in the
    dtype of the activations over a power of two of its column, such that the largest of a column is
    in [1, 2); ``factor`` has that power, and NVFP4's global scale. Both are exact, so that
    :meth:`unpacked` has the scales of the file to the bit.

    Parts:
        b_packed: uint8 ``[round_up(N, 64), round_up(K, 64) / 2]``.
        scales: ``[G, N]``.
        factor: float32 ``[N]``.
        global_scale: float32 ``[N]`` of NVFP4, else None: what a file of compressed-tensors divides
            by.
        pre_scale: ``[K]`` or None, multiplies the activations.
    """

    kind: ClassVar[str] = "float"
    weight_types: ClassVar[tuple[str, ...]] = ("e2m1",)
    parts: ClassVar[tuple[Part, ...]] = (
        Part("b_packed", (torch.uint8,), follows=False, finite=False, rows=0),
        Part("scales", rows=1),
        Part("factor", (torch.float32,), follows=False, rows=0),
        Part("global_scale", (torch.float32,), follows=False, rows=0),
        Part("pre_scale"),
    )
    gemm: ClassVar[Any] = staticmethod(gemm_of_weight)
    dequantizer: ClassVar[Any] = staticmethod(dequantize_codes)
    beside_scales: ClassVar[str] = "factor"
    zeros: ClassVar[None] = None  # type: ignore[misc]
    permutation: ClassVar[None] = None  # type: ignore[misc]

    factor: Tensor
    global_scale: Tensor | None

    def question(self, m: int, out: str, where: str) -> Question:
        """As of the base class, of ``fpA_fpB_gemm``.

        Args:
            m: rows of the activations. out: the dtype of the result. where: the device.
        """
        n, k = self.shape
        weight, size = self.scheme.weight_type, self.scheme.group_size
        return question.codes(m, n, k, out, weight, size, where)

    @classmethod
    def stores(cls, scheme: Scheme, dims: int) -> bool:
        return super().stores(scheme, dims) and scheme.weights.scale_dtype is not None

    @classmethod
    def shapes(cls, shape: tuple[int, ...], scheme: Scheme) -> dict[str, tuple[int, ...]]:
        columns = {"factor": (shape[0],), "global_scale": (shape[0],)}
        return {**super().shapes(shape, scheme), **columns}

    @classmethod
    def present(cls, scheme: Scheme) -> set[str]:
        whole = {"global_scale"} if scheme.weights.strategy == "tensor_group" else set()
        return {"b_packed", "scales", "factor"} | whole

    @classmethod
    def neutral(cls, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        for name in {"factor", "global_scale"} & tensors.keys():
            tensors[name].fill_(1)
        return super().neutral(tensors)

    @classmethod
    def tag_of(cls, shape: tuple[int, ...], scheme: Scheme, permuted: bool) -> dict[str, Any]:
        tag = super().tag_of(shape, scheme, permuted)
        return {**tag, "scale_dtype": scheme.weights.scale_dtype}

    @staticmethod
    def pack(q: Tensor, weight: str) -> Tensor:
        return pack_codes(q, weight)

    @classmethod
    def store(cls, weight: QuantizedWeight, dtype: torch.dtype) -> FloatWeight:
        where = f"mixed_gemm.Linear: {weight.name}"
        if weight.permutation is not None:
            raise ArgumentValueError(
                f"{where}: columns of {weight.scheme} weights must be in order, got a permutation"
            )
        weight = weight.to(dtype)
        scheme = weight.scheme.grouped(weight.group_size)
        scale_dtype = scheme.weights.scale_dtype
        assert scale_dtype is not None
        scales, factor = stored_scales(
            weight.q,
            weight.scales,
            weight.global_scale,
            scale_dtype,
            weight.group_size,
            dtype,
            where,
        )
        tensors = {
            "scales": scales,
            "factor": factor,
            "global_scale": weight.global_scale,
            "pre_scale": weight.pre_scale,
        }
        return cls._packed(where, weight.q, scheme, tensors, in_range=True)

    @classmethod
    def from_float(cls, weight: Tensor, scheme: Scheme) -> FloatWeight:
        """Round a weight by the rules of its format.

        With "e8m0" scales (MXFP4, OCP Microscaling Formats 1.0): the exponent of a scale is that of
        the largest magnitude of its group, less 2. With "e4m3" scales (NVFP4): the largest
        magnitude of the weight becomes 448 * 6, that of a group 6, its scale being rounded. Codes
        are the nearest, ties to even ones; what is beyond 6 becomes 6.

        Args:
            weight: float16, bfloat16 or float32 ``[N, K]``; meta gives meta.
            scheme: of :meth:`Scheme.float4`.

        Raises:
            ValueError: the scheme does not fit the weight, a value is NaN or Inf, or the scales of
                a column of MXFP4 are too far apart for the dtype.
            TypeError: the weight has another dtype.
        """
        where = "mixed_gemm.FloatWeight.from_float"
        weight = checked_dense(where, weight, ("N", "K"))
        cls.check_group(where, scheme.group_size, weight.shape[1])
        if weight.is_meta:
            return cls.empty(tuple(weight.shape), scheme, device="meta", dtype=weight.dtype)
        scale_dtype = scheme.weights.scale_dtype
        assert scale_dtype is not None
        q, scales, global_scale = round_float4(weight, scheme.group_size, scale_dtype)
        found = QuantizedWeight.of_codes(where, q, scales, scheme=scheme, global_scale=global_scale)
        return cls.store(found, weight.dtype)

    def fitted(self, dtype: torch.dtype) -> FloatWeight:
        """Itself.

        Raises:
            ValueError: ``dtype`` does not have the scales.
        """
        if self.scales.is_meta or dtype == torch.float32 or type(self.scales) is not Tensor:
            return self
        if not torch.equal(self.scales.to(dtype).float(), self.scales.float()):
            self.store(self.unpacked("weight"), dtype)  # says why
            raise ArgumentValueError(
                f"QuantizedTensor: the scales of {self.scheme} are none of {dtype_name(dtype)}"
            )
        return self

    def _columns(self, start: int, stop: int) -> FloatWeight:
        shard = super()._columns(start, stop)
        assert isinstance(shard, FloatWeight)
        return shard._at_its_own_power()

    def _at_its_own_power(self) -> FloatWeight:
        """The same weight with the power of two that its own largest scale asks for."""
        if self.is_meta or type(self.scales) is not Tensor:
            return self
        return self.store(self.unpacked(), self.dtype)

    @classmethod
    def join_columns(  # type: ignore[override]
        cls, weights: list[FloatWeight], group_size: int | None = None
    ) -> FloatWeight:
        """The inverse of :meth:`cut` along dim 1.

        Args:
            weights: of one number of rows, the columns of the first in front.
            group_size: of the result; the largest that all pieces allow when None.

        Raises:
            ValueError: pieces have no groups in common, or other scales than ``group_size`` needs;
                or global scales of their own.
        """
        first = weights[0]
        if any(w.is_meta or type(w.scales) is not Tensor for w in weights):
            return super().join_columns(weights, group_size)  # type: ignore[arg-type,return-value]
        wholes = [w.global_scale for w in weights if w.global_scale is not None]
        if any(not torch.equal(x, wholes[0]) for x in wholes):
            raise ArgumentValueError(
                f"QuantizedTensor: columns of {first.scheme} weights are joined where these have "
                "one global_scale, got several"
            )
        # Scales of different powers of two meet as those of a file.
        pieces: list[PackedWeight] = [w._with_file_scales() for w in weights]
        joined = super().join_columns(pieces, group_size)
        found = QuantizedWeight.of_codes(
            "",
            joined._codes(),
            joined.scales,
            scheme=joined.scheme,
            pre_scale=joined.pre_scale,
            global_scale=first.global_scale,
        )
        return cls.store(found, first.dtype)

    def _with_file_scales(self) -> FloatWeight:
        return type(self)(
            {**self.tensors(), "scales": self.unpacked().scales},
            self.scheme,
            self.shape,
            self.dtype,
        )

    def unpacked(self, name: str = "") -> QuantizedWeight:
        scale_dtype = self.scheme.weights.scale_dtype
        assert scale_dtype is not None
        return QuantizedWeight.of_codes(
            name,
            self._codes(),
            file_scales(self.scales, self.factor, self.global_scale, scale_dtype),
            scheme=self.scheme,
            pre_scale=self.pre_scale,
            global_scale=self.global_scale,
        )

    def _codes(self) -> Tensor:
        n, k = self.shape
        return unpack_codes(self.b_packed, self.scheme.weight_type, n, k)
