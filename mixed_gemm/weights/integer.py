"""Weights of integers with scales per channel or group: W4A16 and W8A16."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..ops.errors import check_not_freed, check_storage
from ..ops.gemm import unchecked_gemm
from ..ops.layout import dequantize_weights, pack, unpack
from ..ops.problem import (
    LAYOUT_VERSION,
    PAD_K,
    PAD_N,
    WEIGHTS,
    ceil_div,
    check_bits,
    check_group_size,
    num_groups,
    packed_shape,
)
from .columns import beside_each_other, coarser, common_group, group_of_shard, of_shard
from .exchange import QuantizedWeight
from .rounding import quantize_weight, too_small
from .scheme import Scheme
from .tensor import Part, narrows
from .values import refuse_bad_permutation, weight_tag
from .weight_only import WeightOnlyTensor
from .writing import spliced


class IntegerWeight(WeightOnlyTensor):
    """``x @ w.T = (x[..., permutation] * pre_scale) @ dequantized.T``.

    Parts:
        b_packed: uint8 ``[round_up(N, 64), round_up(K, 64) * bits / 8]``.
        scales: ``[G, N]``. zeros: ``[G, N]`` or None.
        pre_scale: ``[K]`` or None, multiplies the activations (AWQ, SmoothQuant).
        permutation: int64 ``[K]`` or None: column j of the codes belongs to activation
            permutation[j] (GPTQ act-order).
    """

    kind: ClassVar[str] = "integer"
    dims: ClassVar[int] = 2
    parts: ClassVar[tuple[Part, ...]] = (
        Part("b_packed", (torch.uint8,), follows=False, finite=False, rows=0),
        Part("scales", rows=1),
        Part("zeros", rows=1),
        Part("pre_scale"),
        Part("permutation", (torch.int64,), follows=False, finite=False),
    )

    columns_in_order: ClassVar[type[IntegerWeight]]  # the kind of a permuted weight's columns

    b_packed: Tensor
    scales: Tensor
    zeros: Tensor | None
    pre_scale: Tensor | None
    permutation: Tensor | None

    @staticmethod
    def check_group(where: str, group_size: int, channels: int) -> None:
        check_group_size(where, group_size, channels)

    @classmethod
    def shapes(cls, shape: tuple[int, ...], scheme: Scheme) -> dict[str, tuple[int, ...]]:
        n, k = shape
        groups = (num_groups(k, scheme.group_size), n)
        return {
            "b_packed": packed_shape(n, k, scheme.weight_type),
            "scales": groups,
            "zeros": groups,
            "pre_scale": (k,),
            "permutation": (k,),
        }

    @classmethod
    def tag_of(cls, shape: tuple[int, ...], scheme: Scheme, permuted: bool) -> dict[str, Any]:
        return {
            "layout_version": LAYOUT_VERSION,
            "in_features": shape[1],
            "out_features": shape[0],
            **weight_tag(scheme),
            "group_size": scheme.group_size,
            "zero_mode": scheme.zero_mode,
            **({"permuted": True} if permuted else {}),
        }

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
        return cls.from_quantized(q, scales, zeros, **scheme.gemm_options)

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

    @classmethod
    def store(cls, weight: QuantizedWeight, dtype: torch.dtype) -> IntegerWeight:
        weight = weight.to(dtype)
        tensors = {
            "scales": weight.scales,
            "zeros": weight.zeros,
            "pre_scale": weight.pre_scale,
            "permutation": weight.permutation,
        }
        scheme = weight.scheme.grouped(weight.group_size)
        where = f"mixed_gemm.Linear: {weight.name}"
        return cls._packed(where, weight.q, scheme, tensors, in_range=True)

    @classmethod
    def _packed(
        cls,
        where: str,
        q: Tensor,
        scheme: Scheme,
        tensors: Mapping[str, Tensor | None],
        in_range: bool = False,
    ) -> IntegerWeight:
        """The weight of these codes, once everything was checked; see :meth:`checked`."""
        kept = cls.checked(where, q, ("N", "K"), scheme, tensors, in_range)
        refuse_bad_permutation(kept.get("permutation"), where)
        kept["b_packed"] = pack(q, scheme.weight_type)
        return cls(kept, scheme, tuple(q.shape), kept["scales"].dtype)

    def fitted(self, dtype: torch.dtype) -> IntegerWeight:
        if too_small(self.scales, dtype) is None:
            return self
        return self.store(self.unpacked().to(dtype), self.dtype)

    def product(
        self, x: Tensor, bias: Tensor | None = None, activation: str = "identity"
    ) -> Tensor:
        """``activation(x @ w.T + bias)``.

        Args:
            x: ``[..., K]``. bias: ``[N]`` or None. activation: of ``fpA_intB_gemm``.

        Returns:
            ``[..., N]`` in the dtype of ``x`` (or of autocast).

        Raises:
            What ``mixed_gemm.fpA_intB_gemm`` raises.
        """
        if narrows(x, self.dtype):
            return self.product(x.to(self.dtype), bias, activation).to(torch.float32)
        if self.permutation is not None:
            check_not_freed("mixed_gemm.Linear", input=x, permutation=self.permutation)
            x = x.index_select(-1, self.permutation)
        options = self.scheme.gemm_options
        if activation != "identity":
            options = {**options, "activation": activation}
        return unchecked_gemm(
            options, x, self.b_packed, self.scales, self.zeros, bias, self.pre_scale
        )

    def dequantize(self, dtype: torch.dtype | None = None) -> Tensor:
        dtype = dtype or self.dtype
        n, k = self.shape
        folded = self.pre_scale is not None
        weight = dequantize_weights(
            self.b_packed,
            self.scales,
            self.zeros,
            **self.scheme.gemm_options,
            n=n,
            k=k,
            dtype=torch.float32 if folded else dtype,
        )
        check_storage("QuantizedTensor", pre_scale=self.pre_scale, permutation=self.permutation)
        if self.pre_scale is not None:
            weight = (weight * self.pre_scale.float()).to(dtype)
        if self.permutation is not None:
            weight = torch.empty_like(weight).index_copy_(1, self.permutation, weight)
        return weight

    def requantized(self, dense: Tensor) -> IntegerWeight:
        weight = dense
        if self.permutation is not None:
            weight = weight.index_select(1, self.permutation)
        if self.pre_scale is not None:
            weight = weight.float() / self.pre_scale.float()
        new = type(self).from_float(weight.to(self.dtype), self.scheme)
        new.pre_scale, new.permutation = self.pre_scale, self.permutation
        return new

    def _codes(self) -> Tensor:
        n, k = self.shape
        return unpack(self.b_packed, self.scheme.weight_type, n, k)

    def keeping(self, old: IntegerWeight, same: Tensor) -> IntegerWeight:
        """As of the base class, on codes that are unpacked for it.

        Args:
            old: ``[M, K]``. same: bool ``[N]``.
        """
        codes = spliced(self._codes(), old._codes(), same, 0)
        zeros = None
        if self.zeros is not None and old.zeros is not None:
            zeros = spliced(self.zeros, old.zeros, same, 1)
        packed, scales = (
            pack(codes, self.scheme.weight_type),
            spliced(self.scales, old.scales, same, 1),
        )
        return self._like(packed, scales, zeros, self.pre_scale, tuple(self.shape))

    def cut(self, dim: int, start: int, stop: int) -> IntegerWeight:
        """Rows or columns, with storage of their own. Where a group would be cut in two, the groups
        of the shard are smaller ones with the same scales. Columns of a permuted weight come as
        :class:`act_order.ActOrderColumns`.

        Args:
            dim: 0 for rows, 1 for columns. start, stop: of them; columns as the weight stores them.

        Raises:
            ValueError: a group would be cut at no multiple of 16.
        """
        return self._rows(start, stop) if dim == 0 else self._columns(start, stop)

    def _columns(self, start: int, stop: int) -> IntegerWeight:
        k, scheme, zeros = self.shape[1], self.scheme, self.zeros
        size = group_of_shard(scheme.group_size, k, start, stop)
        place = scheme.group_size, size, start, stop
        if start % PAD_K == 0 and (stop % PAD_K == 0 or stop == k):
            packed = self._tiles()[:, start // PAD_K : ceil_div(stop, PAD_K)]
            packed = packed.reshape(self.b_packed.shape[0], -1).contiguous()
            packed = packed.clone() if packed.data_ptr() == self.b_packed.data_ptr() else packed
        else:
            packed = pack(self._codes()[:, start:stop].contiguous(), scheme.weight_type)
        pre_scale, order = self.pre_scale, self.permutation
        kind = type(self) if order is None or stop - start == k else self.columns_in_order
        parts = {
            "b_packed": packed,
            "scales": of_shard(self.scales, *place),
            "zeros": None if zeros is None else of_shard(zeros, *place),
            "pre_scale": None if pre_scale is None else pre_scale[start:stop].clone(),
            "permutation": None if order is None else order[start:stop].clone(),
        }
        columns = stop - start
        smaller = scheme.with_group_size(size, columns)
        return kind(parts, smaller, (self.shape[0], columns), self.dtype)

    def _tiles(self) -> Tensor:
        """The packed weight as ``[N / I, K / 64, 128]``: lines of 64 columns of I = 16 / bits rows,
        so that columns in whole lines are a slice of it."""
        rows, width = self.b_packed.shape
        interleave = 16 // WEIGHTS[self.scheme.weight_type].bits
        return self.b_packed.view(rows // interleave, interleave * width // 128, 128)

    def _rows(self, start: int, stop: int) -> IntegerWeight:
        rows = slice(start, stop)
        if start % PAD_N == 0 and (stop % PAD_N == 0 or stop == self.shape[0]):
            packed = self.b_packed[start : -(-stop // PAD_N) * PAD_N].clone()
        else:
            packed = pack(self._codes()[rows].contiguous(), self.scheme.weight_type)
        return self._like(
            packed,
            self.scales[:, rows].clone(memory_format=torch.contiguous_format),
            None
            if self.zeros is None
            else self.zeros[:, rows].clone(memory_format=torch.contiguous_format),
            self.pre_scale,
            (stop - start, self.shape[1]),
        )

    def _like(
        self,
        packed: Tensor,
        scales: Tensor,
        zeros: Tensor | None,
        pre_scale: Tensor | None,
        shape: tuple[int, ...],
    ) -> IntegerWeight:
        tensors = {
            "b_packed": packed,
            "scales": scales,
            "zeros": zeros,
            "pre_scale": pre_scale,
            "permutation": self.permutation,
        }
        scheme = self.scheme.with_group_size(self.scheme.group_size, shape[1])
        return type(self)(tensors, scheme, shape, self.dtype)

    @classmethod
    def join_columns(
        cls, weights: list[IntegerWeight], group_size: int | None = None
    ) -> IntegerWeight:
        """The inverse of :meth:`cut` along dim 1.

        Args:
            weights: of one number of rows, the columns of the first in front.
            group_size: of the result; the largest that all shards allow when None.

        Raises:
            ValueError: shards have no groups in common, or other scales than ``group_size`` needs.
        """
        first, shards = weights[0], [(w.scheme.group_size, w.shape[1]) for w in weights]
        fine = common_group(shards)
        shape = (first.shape[0], sum(w.shape[1] for w in weights))
        size = fine if group_size is None else group_size

        def whole(name: str) -> Tensor | None:
            given = [getattr(w, name) for w in weights]
            if given[0] is None:
                return None
            beside = [(x, *shard) for x, shard in zip(given, shards, strict=True)]
            return coarser(beside_each_other(beside, fine), fine, size, shape[1])

        def joined(name: str) -> Tensor | None:
            return None if getattr(first, name) is None else torch.cat(
                [getattr(w, name) for w in weights]
            )  # fmt: skip

        scheme = first.scheme.with_group_size(size, shape[1])
        parts = {
            "b_packed": pack(torch.cat([w._codes() for w in weights], 1), scheme.weight_type),
            "scales": whole("scales"),
            "zeros": whole("zeros"),
            "pre_scale": joined("pre_scale"),
            "permutation": joined("permutation"),
        }
        return IntegerWeight(parts, scheme, shape, first.dtype)

    @classmethod
    def join(cls, weights: list[IntegerWeight]) -> IntegerWeight:
        first = weights[0]
        aligned = all(w.shape[0] % PAD_N == 0 for w in weights[:-1])
        if aligned:
            packed = torch.cat([w.b_packed for w in weights])
        else:
            packed = pack(torch.cat([w._codes() for w in weights]), first.scheme.weight_type)
        zeros = [w.zeros for w in weights if w.zeros is not None]
        return first._like(
            packed,
            torch.cat([w.scales for w in weights], 1),
            torch.cat(zeros, 1) if zeros else None,
            first.pre_scale,
            (sum(w.shape[0] for w in weights), first.shape[1]),
        )

    def unpacked(self, name: str = "") -> QuantizedWeight:
        return QuantizedWeight.of_codes(
            name,
            self._codes(),
            self.scales,
            self.zeros,
            scheme=self.scheme,
            pre_scale=self.pre_scale,
            permutation=self.permutation,
        )
