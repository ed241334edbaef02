"""W8A8 by block: int8 weights with a scale (and an offset) for each output channel and block of K,
activations rounded to int8 by row and block on the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..ops.block import block_quant_gemm, block_sums
from ..ops.conv_problem import check_block_size
from ..ops.errors import ArgumentTypeError, ArgumentValueError, check_not_freed, check_storage
from ..ops.problem import ACTIVATIONS, MAX_INT8_K, num_groups
from . import question
from .columns import beside_each_other, coarser, common_group, group_of_shard, of_shard
from .exchange import QuantizedWeight
from .question import Question
from .rounding import checked_dense, quantize_weight
from .rounding_conv import quantize_conv_weight
from .scheme import Scheme, is_by_block
from .tensor import Part, QuantizedTensor, narrows, part_problems, under_autocast
from .values import refuse_non_finite

_FLOATS = ("scales", "offsets", "pre_scale")


class W8A8BlockWeight(QuantizedTensor):
    """``x @ w.T`` by ``block_quant_gemm``, w = q * scale (+ offset): an outlier of the activations
    costs the other columns of its block their resolution, and no others. Gradients pass straight
    through the rounding of the activations.

    Parts:
        weight_int8: int8 ``[N, K]``; a block has at most 131071 columns.
        scales: ``[ceil(K / group_size), N]`` in the dtype of the weight. offsets: the same or None.
        pre_scale: ``[K]`` in the dtype of the weight, or None (SmoothQuant that could not be folded
            into the layer before).
        b_sums: int32, shaped as the scales: ``ops.block_sums`` of the weight, which no call has to
            compute then. Derived: in no file and no state_dict.
    """

    kind: ClassVar[str] = "w8a8_block"
    fuses: ClassVar[tuple[str, ...]] = ACTIVATIONS
    parts: ClassVar[tuple[Part, ...]] = (
        Part("weight_int8", (torch.int8,), follows=False, finite=False, rows=0),
        Part("scales", rows=1),
        Part("offsets", rows=1),
        Part("pre_scale"),
        Part("b_sums", (torch.int32,), follows=False, finite=False, rows=1, derived=True),
    )

    weight_int8: Tensor
    scales: Tensor
    offsets: Tensor | None
    pre_scale: Tensor | None
    b_sums: Tensor | None = None

    @classmethod
    def stores(cls, scheme: Scheme, dims: int) -> bool:
        return dims == 2 and is_by_block(scheme)

    @classmethod
    def why_not(cls, scheme: Scheme, shape: tuple[int, ...]) -> str:
        try:
            check_block_size("scheme", scheme.group_size, shape[1], "K")
        except ValueError as error:
            return str(error).removeprefix("scheme: ")
        if (shape[1] if scheme.group_size == -1 else scheme.group_size) > MAX_INT8_K:
            return f"a block must have at most {MAX_INT8_K} columns, so that int32 sums cannot wrap"
        return ""

    @classmethod
    def present(cls, scheme: Scheme) -> set[str]:
        return {"weight_int8", "scales", "b_sums"} | ({"offsets"} if scheme.has_zeros else set())

    @classmethod
    def derive(
        cls,
        tensors: Mapping[str, Tensor | None],
        scheme: Scheme,
        shape: tuple[int, ...] = (),
        dtype: torch.dtype | None = None,
    ) -> dict[str, Tensor]:
        weight = tensors["weight_int8"]
        assert weight is not None
        return {"b_sums": block_sums(weight.t(), scheme.group_size)}

    @classmethod
    def shapes(cls, shape: tuple[int, ...], scheme: Scheme) -> dict[str, tuple[int, ...]]:
        n, k = shape
        blocks = (num_groups(k, scheme.group_size), n)
        of_blocks = dict.fromkeys(("scales", "offsets", "b_sums"), blocks)
        return {"weight_int8": (n, k), "pre_scale": (k,), **of_blocks}

    @classmethod
    def tag_of(cls, shape: tuple[int, ...], scheme: Scheme, permuted: bool) -> dict[str, Any]:
        return {
            "scheme": "w8a8_block",
            "in_features": shape[1],
            "out_features": shape[0],
            "block_size": scheme.group_size,
            "offsets": scheme.has_zeros,
        }

    @classmethod
    def from_float(
        cls,
        weight: Tensor,
        scheme: Scheme,
        *,
        dtype: torch.dtype | None = None,
        smoothing: Tensor | None = None,
        folded: bool = False,
    ) -> W8A8BlockWeight:
        """Round a weight to nearest, with a scale for each output channel and block.

        Args:
            weight: float16, bfloat16 or float32 ``[N, K]``.
            scheme: from ``Scheme.w8a8_block``.
            dtype: of the activations; that of ``weight`` when None.
            smoothing: SmoothQuant's factors ``[K]``, as of ``W8A8Weight.from_float``.
            folded: the layer before divides already, so that no pre_scale is kept.

        Raises:
            ValueError: the scheme does not fit, or the weight holds NaN or Inf.
            TypeError: the weight has another dtype.
        """
        weight = checked_dense("mixed_gemm.W8A8BlockWeight", weight, ("N", "K"))
        dtype = dtype or weight.dtype
        if smoothing is not None:
            weight = weight.float() * smoothing
        q, scales, offsets = _rounded(weight.to(dtype), scheme)
        kept = None if smoothing is None or folded else smoothing.reciprocal().to(dtype)
        return cls.from_quantized(q, scales, offsets, kept, block_size=scheme.group_size)

    @classmethod
    def from_quantized(
        cls,
        weight: Tensor,
        scales: Tensor,
        offsets: Tensor | None = None,
        pre_scale: Tensor | None = None,
        *,
        block_size: int,
        where: str = "mixed_gemm.W8A8BlockWeight.from_quantized",
    ) -> W8A8BlockWeight:
        """Take a weight that is int8 already.

        Args:
            weight: int8 ``[N, K]``.
            scales: ``[ceil(K / block_size), N]``; its dtype is that of the activations.
            offsets: the same or None. pre_scale: ``[K]`` or None.
            block_size: -1 (all of K) or a multiple of 16 that is at most K.
            where: what an error names.

        Raises:
            ValueError: a tensor does not fit the rest, has lost its storage or holds NaN or Inf.
            TypeError: ``weight`` is not int8.
        """
        if weight.dim() != 2 or weight.dtype != torch.int8:
            error = ArgumentTypeError if weight.dtype != torch.int8 else ArgumentValueError
            raise error(
                f"{where}: weight must be int8 [N, K], got {weight.dtype} {tuple(weight.shape)}"
            )
        floats = {"scales": scales, "offsets": offsets, "pre_scale": pre_scale}
        check_storage(where, weight=weight, **floats)
        scheme, shape = Scheme.w8a8_block(block_size, offsets is None), tuple(weight.shape)
        if reason := cls.why_not(scheme, shape):
            raise ArgumentValueError(f"{where}: {reason}")
        if problems := part_problems(cls, shape, scheme, floats):
            raise ArgumentValueError(f"{where}: " + "; ".join(problems))
        refuse_non_finite(floats, where, _FLOATS)
        tensors = {"weight_int8": weight, **floats}
        kept = {name: x.detach().contiguous() for name, x in tensors.items() if x is not None}
        return cls(kept, scheme, shape, scales.dtype)

    @classmethod
    def store(cls, weight: QuantizedWeight, dtype: torch.dtype) -> W8A8BlockWeight:
        if weight.permutation is not None:
            raise ArgumentValueError(
                f"mixed_gemm.Linear: {weight.name} has permuted columns (act-order), which weights "
                "whose activations are rounded do not take"
            )
        weight = weight.to(dtype)
        return cls.from_quantized(
            weight.q,
            weight.scales,
            weight.zeros,
            weight.pre_scale,
            block_size=weight.group_size,
            where=f"mixed_gemm.Linear: {weight.name}",
        )

    def question(self, m: int, out: str, where: str) -> Question:
        n, k = self.shape
        return question.by_block(m, n, k, out, self.scheme.group_size, where)

    def product(
        self, x: Tensor, bias: Tensor | None = None, activation: str = "identity"
    ) -> Tensor:
        """``activation(x @ w.T + bias)``.

        Args:
            x: ``[..., K]``. bias: ``[N]`` or None. activation: of ``block_quant_gemm``.

        Returns:
            ``[..., N]`` in the dtype of ``x`` (or of autocast).

        Raises:
            What ``mixed_gemm.block_quant_gemm`` raises.
        """
        if narrows(x, self.dtype):
            return self.product(x.to(self.dtype), bias, activation).to(torch.float32)
        scales, offsets, pre_scale = self.scales, self.offsets, self.pre_scale
        read_by_torch = {} if pre_scale is None else {"input": x, "pre_scale": pre_scale}
        check_not_freed("mixed_gemm.Linear", weight_int8=self.weight_int8, **read_by_torch)
        x, bias, scales, offsets, pre_scale = under_autocast(x, bias, scales, offsets, pre_scale)
        return block_quant_gemm(
            x if pre_scale is None else x * pre_scale,
            self.weight_int8.t(),
            scales,
            torch.zeros_like(scales) if offsets is None else offsets,
            bias,
            block_size=self.scheme.group_size,
            activation=activation,
            b_sums=self.b_sums,
        )

    def dequantize(self, dtype: torch.dtype | None = None) -> Tensor:
        check_storage("QuantizedTensor", **self.stored())
        k, size = self.shape[1], self.scheme.group_size

        def each(values: Tensor) -> Tensor:
            return values.float().t().repeat_interleave(k if size == -1 else size, dim=1)[:, :k]

        weight = self.weight_int8.float() * each(self.scales)
        if self.offsets is not None:
            weight = weight + each(self.offsets)
        if self.pre_scale is not None:
            weight = weight * self.pre_scale.float()
        return weight.to(dtype or self.dtype)

    def requantized(self, dense: Tensor) -> W8A8BlockWeight:
        weight = dense.float()
        if self.pre_scale is not None:
            weight = weight / self.pre_scale.float()
        q, scales, offsets = _rounded(weight.to(self.dtype), self.scheme)
        return self._like(q, scales, offsets, self.pre_scale)

    def _like(
        self,
        q: Tensor,
        scales: Tensor,
        offsets: Tensor | None,
        pre_scale: Tensor | None,
        b_sums: Tensor | None = None,
        block_size: int | None = None,
    ) -> W8A8BlockWeight:
        """b_sums: those of ``q``; worked out when None. block_size: as now when None."""
        scheme = self.scheme
        size = scheme.group_size if block_size is None else block_size
        scheme = scheme.with_group_size(size, q.shape[1])
        parts = {
            "weight_int8": q, "scales": scales, "offsets": offsets, "pre_scale": pre_scale,
            "b_sums": b_sums,
        }  # fmt: skip
        return type(self)(parts, scheme, tuple(q.shape), self.dtype)

    def cut(self, dim: int, start: int, stop: int) -> W8A8BlockWeight:
        k, size, part = self.shape[1], self.scheme.group_size, slice(start, stop)
        if dim == 0:
            offsets = _taken(self.offsets, slice(None), part)
            q, scales = _copied(self.weight_int8[part]), _copied(self.scales[:, part])
            b_sums = _taken(self.b_sums, slice(None), part)
            return self._like(q, scales, offsets, self.pre_scale, b_sums)
        smaller = group_of_shard(size, k, start, stop)
        place = size, smaller, start, stop
        offsets = None if self.offsets is None else of_shard(self.offsets, *place)
        return self._like(
            _copied(self.weight_int8[:, part]),
            of_shard(self.scales, *place),
            offsets,
            _taken(self.pre_scale, part),
            block_size=smaller,
        )

    @classmethod
    def join_columns(
        cls, weights: list[W8A8BlockWeight], group_size: int | None = None
    ) -> W8A8BlockWeight:
        """The inverse of :meth:`cut` along dim 1.

        Args:
            weights: of one number of rows, the columns of the first in front.
            group_size: columns of a block of the result; as many as all shards allow when None.

        Raises:
            ValueError: shards have no blocks in common, or other scales than ``group_size`` needs.
        """
        first, shards = weights[0], [(w.scheme.group_size, w.shape[1]) for w in weights]
        fine, k = common_group(shards), sum(w.shape[1] for w in weights)
        size = fine if group_size is None else group_size

        def whole(name: str) -> Tensor | None:
            given = [getattr(w, name) for w in weights]
            if given[0] is None:
                return None
            beside = [(x, *shard) for x, shard in zip(given, shards, strict=True)]
            return coarser(beside_each_other(beside, fine), fine, size, k)

        scales, pre_scales = (
            whole("scales"),
            [w.pre_scale for w in weights if w.pre_scale is not None],
        )
        assert scales is not None
        return first._like(
            torch.cat([w.weight_int8 for w in weights], 1),
            scales,
            whole("offsets"),
            torch.cat(pre_scales) if pre_scales else None,
            block_size=size,
        )

    @classmethod
    def join(cls, weights: list[W8A8BlockWeight]) -> W8A8BlockWeight:
        first = weights[0]
        offsets = [w.offsets for w in weights if w.offsets is not None]
        b_sums = [w.b_sums for w in weights if w.b_sums is not None]
        return first._like(
            torch.cat([w.weight_int8 for w in weights]),
            torch.cat([w.scales for w in weights], 1),
            torch.cat(offsets, 1) if offsets else None,
            first.pre_scale,
            torch.cat(b_sums, 1) if len(b_sums) == len(weights) else None,
        )

    def unpacked(self, name: str = "") -> QuantizedWeight:
        return QuantizedWeight.stored_as(
            name, self.weight_int8, self.scales, self.offsets, scheme=self.scheme,
            pre_scale=self.pre_scale,
        )  # fmt: skip


def _copied(x: Tensor) -> Tensor:
    return x.clone(memory_format=torch.contiguous_format)


def _taken(x: Tensor | None, *place: slice) -> Tensor | None:
    return None if x is None else _copied(x[place])


def _rounded(weight: Tensor, scheme: Scheme) -> tuple[Tensor, Tensor, Tensor | None]:
    """(q, scales, offsets); scales in the dtype of ``weight``. An offset is a real number, so that
    the range of a block need not include 0: what a filter of one tap has."""
    if not scheme.has_zeros:
        return quantize_weight(weight, 8, scheme.group_size)
    taps = weight[:, :, None, None]
    q, scales, offsets = quantize_conv_weight(taps, 8, scheme.group_size, symmetric=False)
    return q[:, :, 0, 0].contiguous(), scales, offsets
