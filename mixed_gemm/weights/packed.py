"""Weights of packed codes, whichever their type: their parts, and how they are cut and joined.

The file is long because it is one class: every shard of a weight is made of all its parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import embedding, pad

from ..ops.errors import check_not_freed, check_storage
from ..ops.problem import (
    LAYOUT_VERSION,
    PAD_K,
    PAD_N,
    WEIGHTS,
    ceil_div,
    check_group_size,
    num_groups,
    packed_shape,
)
from .columns import beside_each_other, coarser, common_group, group_of_shard, of_shard
from .exchange import QuantizedWeight
from .rounding import too_small
from .scheme import Scheme
from .tensor import Part, check_columns, narrows
from .values import refuse_bad_permutation, weight_tag
from .weight_only import WeightOnlyTensor
from .writing import spliced

Self = TypeVar("Self", bound="PackedWeight")

_ALONG_K = ("pre_scale", "permutation")  # parts with an element for each column


def _gathered(b_packed: Tensor, chosen: Tensor, bits: int) -> Tensor:
    """Rows of a packed weight as a packed weight of their own: a line of 128 bytes has 64 columns
    of 16 / bits rows, of which each has bytes beside each other.

    Args:
        b_packed: uint8 ``[round_up(N, 64), W]``. chosen: ``[M]``, rows.

    Returns:
        uint8 ``[round_up(M, 64), W]``.
    """
    interleave = 16 // bits
    lines = b_packed.view(-1, b_packed.shape[1] * interleave // 128, interleave, 128 // interleave)
    found = lines[chosen // interleave, :, chosen % interleave]
    padding = -chosen.shape[0] % PAD_N
    found = pad(found, (0, 0, 0, 0, 0, padding))
    found = found.view(-1, interleave, *found.shape[1:]).transpose(1, 2)
    return found.reshape(-1, b_packed.shape[1])


class PackedWeight(WeightOnlyTensor):
    """``x @ w.T = (x[..., permutation] * pre_scale) @ dequantized.T``, of codes of any type in
    ``ops.problem.WEIGHTS``. A kind is a subclass, such as ``IntegerWeight``.

    Parts:
        b_packed: uint8 ``[round_up(N, 64), round_up(K, 64) * bits / 8]``.
        scales: ``[G, N]``. zeros: ``[G, N]`` or None.
        pre_scale: ``[K]`` or None, multiplies the activations (AWQ, SmoothQuant).
        permutation: int64 ``[K]`` or None: column j of the codes belongs to activation
            permutation[j] (GPTQ act-order).
    """

    dims: ClassVar[int] = 2
    parts: ClassVar[tuple[Part, ...]] = (
        Part("b_packed", (torch.uint8,), follows=False, finite=False, rows=0),
        Part("scales", rows=1),
        Part("zeros", rows=1),
        Part("pre_scale"),
        Part("permutation", (torch.int64,), follows=False, finite=False),
    )

    columns_in_order: ClassVar[type[PackedWeight]]  # the kind of a permuted weight's columns
    # The op behind ``product``: f(options, x, b_packed, scales, what is beside them, bias,
    # pre_scale), options being the scheme's ``gemm_options``; and that behind ``dequantize``:
    # f(b_packed, scales, what is beside them, n=, k=, dtype=, **gemm_options). A kind says them,
    # and ``pack`` and ``_codes``.
    gemm: ClassVar[Any]
    dequantizer: ClassVar[Any]
    beside_scales: ClassVar[str] = "zeros"  # the part that the op takes behind the scales

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
    def store(cls, weight: QuantizedWeight, dtype: torch.dtype) -> PackedWeight:
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
        cls: type[Self],
        where: str,
        q: Tensor,
        scheme: Scheme,
        tensors: Mapping[str, Tensor | None],
        in_range: bool = False,
    ) -> Self:
        """The weight of these codes, once everything was checked; see :meth:`checked`."""
        kept = cls.checked(where, q, ("N", "K"), scheme, tensors, in_range)
        refuse_bad_permutation(kept.get("permutation"), where)
        kept["b_packed"] = cls.pack(q, scheme.weight_type)
        return cls(kept, scheme, tuple(q.shape), kept["scales"].dtype)

    def fitted(self, dtype: torch.dtype) -> PackedWeight:
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
            What the op raises.
        """
        check_columns(x, self.shape[1])
        if narrows(x, self.dtype):
            return self.product(x.to(self.dtype), bias, activation).to(torch.float32)
        if self.permutation is not None:
            check_not_freed("mixed_gemm.Linear", input=x, permutation=self.permutation)
            x = x.index_select(-1, self.permutation)
        options = self.scheme.gemm_options
        if activation != "identity":
            options = {**options, "activation": activation}
        out: Tensor = self.gemm(
            options,
            x,
            self.b_packed,
            self.scales,
            getattr(self, self.beside_scales),
            bias,
            self.pre_scale,
        )
        return out

    def dequantize(self, dtype: torch.dtype | None = None) -> Tensor:
        beside = getattr(self, self.beside_scales)
        return self._dequantized(self.b_packed, self.scales, beside, self.shape[0], dtype)

    def rows(self, indices: Tensor) -> Tensor:
        """The rows at ``indices``, those of :meth:`dequantize` to the bit: they are gathered as
        they are packed, and only they become dense.

        Args:
            indices: int32 or int64, of any shape, in 0..N - 1.

        Returns:
            ``[*indices.shape, K]`` in the dtype of the weight.

        Raises:
            What ``torch.nn.functional.embedding`` raises for indices that are none.
        """
        b_packed, scales = self.b_packed, self.scales
        check_not_freed("mixed_gemm.Embedding", input=indices, b_packed=b_packed, scales=scales)
        chosen = indices.reshape(-1)
        # Not index_select, which raises another error for indices that are none.
        scales, beside = embedding(chosen, scales.t()).t(), getattr(self, self.beside_scales)
        beside = None if beside is None else beside.index_select(-1, chosen)
        packed = _gathered(b_packed, chosen, WEIGHTS[self.scheme.weight_type].bits)
        dense = self._dequantized(packed, scales.contiguous(), beside, chosen.shape[0], None)
        return dense.view(*indices.shape, self.shape[1])

    def _dequantized(
        self,
        b_packed: Tensor,
        scales: Tensor,
        beside: Tensor | None,
        rows: int,
        dtype: torch.dtype | None,
    ) -> Tensor:
        """Rows of the dense weight, of packed ones with as many scales."""
        dtype = dtype or self.dtype
        exact = dtype if self.pre_scale is None else torch.float32
        options = {**self.scheme.gemm_options, "n": rows, "k": self.shape[1], "dtype": exact}
        weight: Tensor = self.dequantizer(b_packed, scales, beside, **options)
        check_storage("QuantizedTensor", pre_scale=self.pre_scale, permutation=self.permutation)
        if self.pre_scale is not None:
            weight = (weight * self.pre_scale.float()).to(dtype)
        if self.permutation is not None:
            weight = torch.empty_like(weight).index_copy_(1, self.permutation, weight)
        return weight

    def requantized(self, dense: Tensor) -> PackedWeight:
        weight = dense
        if self.permutation is not None:
            weight = weight.index_select(1, self.permutation)
        if self.pre_scale is not None:
            weight = weight.float() / self.pre_scale.float()
        new = type(self).from_float(weight.to(self.dtype), self.scheme)
        new.pre_scale, new.permutation = self.pre_scale, self.permutation
        return new

    @staticmethod
    def pack(q: Tensor, weight: str) -> Tensor:
        """The packed weight.

        Args:
            q: int8 ``[N, K]``, the codes as a ``QuantizedWeight`` has them. weight: their type.
        """
        raise NotImplementedError

    def _codes(self) -> Tensor:
        """The codes that :meth:`pack` took: int8 ``[N, K]``."""
        raise NotImplementedError

    def keeping(self, old: PackedWeight, same: Tensor) -> PackedWeight:
        """As of the base class, on codes that are unpacked for it.

        Args:
            old: ``[M, K]``. same: bool ``[N]``.
        """
        parts = self.tensors()
        for part in self.parts[1:]:
            if part.rows is not None and part.name in parts:
                before = getattr(old, part.name)
                parts[part.name] = spliced(parts[part.name], before, same, part.rows)
        codes = spliced(self._codes(), old._codes(), same, 0)
        return self._like({**parts, "b_packed": self.pack(codes, self.scheme.weight_type)})

    def cut(self, dim: int, start: int, stop: int) -> PackedWeight:
        """Rows or columns, with storage of their own. Where a group would be cut in two, the groups
        of the shard are smaller ones with the same scales. Columns of a permuted weight come as
        :class:`act_order.ActOrderColumns`.

        Args:
            dim: 0 for rows, 1 for columns. start, stop: of them; columns as the weight stores them.

        Raises:
            ValueError: a group would be cut at no multiple of 16.
        """
        return self._rows(start, stop) if dim == 0 else self._columns(start, stop)

    def _columns(self, start: int, stop: int) -> PackedWeight:
        k, scheme = self.shape[1], self.scheme
        size = group_of_shard(scheme.group_size, k, start, stop)
        place = scheme.group_size, size, start, stop
        if start % PAD_K == 0 and (stop % PAD_K == 0 or stop == k):
            packed = self._tiles()[:, start // PAD_K : ceil_div(stop, PAD_K)]
            packed = packed.reshape(self.b_packed.shape[0], -1).contiguous()
            packed = packed.clone() if packed.data_ptr() == self.b_packed.data_ptr() else packed
        else:
            packed = self.pack(self._codes()[:, start:stop].contiguous(), scheme.weight_type)
        order = self.permutation
        kind = type(self) if order is None or stop - start == k else self.columns_in_order
        parts: dict[str, Tensor] = {"b_packed": packed}
        for name, x in self.tensors().items():
            if name in ("scales", "zeros"):
                parts[name] = of_shard(x, *place)
            elif name != "b_packed":
                parts[name] = (x[start:stop] if name in _ALONG_K else x).clone()
        columns = stop - start
        smaller = scheme.with_group_size(size, columns)
        return kind(parts, smaller, (self.shape[0], columns), self.dtype)

    def _tiles(self) -> Tensor:
        """The packed weight as ``[N / I, K / 64, 128]``: lines of 64 columns of I = 16 / bits rows,
        so that columns in whole lines are a slice of it."""
        rows, width = self.b_packed.shape
        interleave = 16 // WEIGHTS[self.scheme.weight_type].bits
        return self.b_packed.view(rows // interleave, interleave * width // 128, 128)

    def _rows(self, start: int, stop: int) -> PackedWeight:
        if start % PAD_N == 0 and (stop % PAD_N == 0 or stop == self.shape[0]):
            packed = self.b_packed[start : -(-stop // PAD_N) * PAD_N].clone()
        else:
            packed = self.pack(self._codes()[start:stop].contiguous(), self.scheme.weight_type)
        parts = self.tensors()
        for part in self.parts[1:]:
            if part.rows is not None and part.name in parts:
                shard = parts[part.name].narrow(part.rows, start, stop - start)
                parts[part.name] = shard.clone(memory_format=torch.contiguous_format)
        return self._like({**parts, "b_packed": packed}, stop - start)

    def _like(self, parts: Mapping[str, Tensor], rows: int | None = None) -> PackedWeight:
        """A weight of the same scheme with these parts, of as many rows; of as many as this one
        has when None."""
        n, k = self.shape
        scheme = self.scheme.with_group_size(self.scheme.group_size, k)
        return type(self)(parts, scheme, (n if rows is None else rows, k), self.dtype)

    @classmethod
    def join_columns(
        cls, weights: list[PackedWeight], group_size: int | None = None
    ) -> PackedWeight:
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
        codes = torch.cat([w._codes() for w in weights], 1)
        parts = {
            **first.tensors(),
            "b_packed": cls.pack(codes, scheme.weight_type),
            **{name: whole(name) for name in ("scales", "zeros")},
            **{name: joined(name) for name in _ALONG_K},
        }
        return cls(parts, scheme, shape, first.dtype)

    @classmethod
    def join(cls, weights: list[PackedWeight]) -> PackedWeight:
        first = weights[0]
        aligned = all(w.shape[0] % PAD_N == 0 for w in weights[:-1])
        if aligned:
            packed = torch.cat([w.b_packed for w in weights])
        else:
            packed = cls.pack(torch.cat([w._codes() for w in weights]), first.scheme.weight_type)
        parts = first.tensors()
        for part in cls.parts[1:]:
            if part.rows is not None and part.name in parts:
                parts[part.name] = torch.cat([getattr(w, part.name) for w in weights], part.rows)
        return first._like({**parts, "b_packed": packed}, sum(w.shape[0] for w in weights))

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
