"""Rows of an embedding in int8: looked up, not multiplied."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ..ops.errors import ArgumentTypeError, ArgumentValueError, check_not_freed, check_storage
from .dense import on_dense
from .exchange import QuantizedWeight
from .packed import PackedWeight
from .rounding import quantize_weight
from .rules import rule
from .scheme import Scheme
from .tensor import Part, QuantizedTensor, part_problems
from .values import refuse_non_finite

# Four bits with a scale for a whole row would be 12 % off RMS, where eight are 0.8 %.
ROWS = Scheme.weight_only(8, -1)


class RowsWeight(QuantizedTensor):
    """The weight ``[V, D]`` of an embedding, row = q * scale: exactly that, rounded once to the
    dtype of the weight. No scheme makes it of a linear.

    Parts:
        weight_int8: int8 ``[V, D]``. weight_scale: float32 ``[V]``.
    """

    module: ClassVar[str] = "embedding"
    kind: ClassVar[str] = "rows"
    parts: ClassVar[tuple[Part, ...]] = (
        Part("weight_int8", (torch.int8,), follows=False, finite=False, rows=0),
        Part("weight_scale", (torch.float32,), follows=False, rows=0),
    )

    weight_int8: Tensor
    weight_scale: Tensor

    @classmethod
    def stores(cls, scheme: Scheme, dims: int) -> bool:
        return False

    @classmethod
    def why_not(cls, scheme: Scheme, shape: tuple[int, ...]) -> str:
        return "" if scheme == ROWS else f"embeddings are stored as {ROWS}, not as {scheme}"

    @classmethod
    def present(cls, scheme: Scheme) -> set[str]:
        return {part.name for part in cls.parts}

    @classmethod
    def shapes(cls, shape: tuple[int, ...], scheme: Scheme) -> dict[str, tuple[int, ...]]:
        return {"weight_int8": shape, "weight_scale": shape[:1]}

    @classmethod
    def tag_of(cls, shape: tuple[int, ...], scheme: Scheme, permuted: bool) -> dict[str, Any]:
        return {"scheme": "rows", "num_embeddings": shape[0], "embedding_dim": shape[1]}

    @classmethod
    def from_float(cls, weight: Tensor, scheme: Scheme = ROWS) -> RowsWeight:
        """Round rows to nearest.

        Args:
            weight: float16, bfloat16 or float32 ``[V, D]``. scheme: the only one there is.

        Raises:
            ValueError: the weight holds NaN or Inf. TypeError: it has another dtype.
        """
        q, scales, _ = quantize_weight(weight, 8, -1, scale_dtype=torch.float32)
        return cls.from_quantized(q, scales[0], dtype=weight.dtype)

    @classmethod
    def from_quantized(
        cls,
        weight: Tensor,
        weight_scale: Tensor,
        *,
        dtype: torch.dtype | None = None,
        where: str = "mixed_gemm.RowsWeight.from_quantized",
    ) -> RowsWeight:
        """Take rows that are int8 already.

        Args:
            weight: int8 ``[V, D]``. weight_scale: ``[V]``, kept in float32.
            dtype: of the dense rows; torch's default when None.
            where: what an error names.

        Raises:
            ValueError: the scales do not fit, hold NaN or Inf, or a tensor has lost its storage.
            TypeError: ``weight`` is not int8.
        """
        if weight.dim() != 2 or weight.dtype != torch.int8:
            error = ArgumentTypeError if weight.dtype != torch.int8 else ArgumentValueError
            found = f"{weight.dtype} {tuple(weight.shape)}"
            raise error(f"{where}: weight must be int8 [V, D], got {found}")
        check_storage(where, weight=weight, weight_scale=weight_scale)
        shape = tuple(weight.shape)
        tensors = {
            "weight_int8": weight.detach().contiguous(),
            "weight_scale": weight_scale.detach().float().contiguous(),
        }
        if problems := part_problems(cls, shape, ROWS, tensors):
            raise ArgumentValueError(f"{where}: " + "; ".join(problems))
        refuse_non_finite(tensors, where, ("weight_scale",))
        return cls(tensors, ROWS, shape, dtype or torch.get_default_dtype())

    @classmethod
    def store(cls, weight: QuantizedWeight, dtype: torch.dtype) -> RowsWeight:
        where = f"mixed_gemm.Embedding: {weight.name}"
        if reason := cls.why_not(weight.scheme, weight.shape):
            raise ArgumentValueError(f"{where}: {reason}")
        return cls.from_quantized(weight.q, weight.scales[0], dtype=dtype, where=where)

    def rows(self, indices: Tensor) -> Tensor:
        """The rows at ``indices``, those of :meth:`dequantize` to the bit.

        Args:
            indices: int32 or int64, of any shape, in 0..V - 1.

        Returns:
            ``[*indices.shape, D]`` in the dtype of the weight.

        Raises:
            What ``torch.nn.functional.embedding`` raises for indices that are none.
        """
        q, scale = self.weight_int8, self.weight_scale
        check_not_freed("mixed_gemm.Embedding", input=indices, weight_int8=q, weight_scale=scale)
        found = torch.nn.functional.embedding(indices, q).float()
        scales = torch.nn.functional.embedding(indices, scale.unsqueeze(1))
        return (found * scales).to(self.dtype)

    def product(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """``x @ w.T + bias``, for who multiplies by an embedding: the weight is made dense.

        Args:
            x: float ``[..., D]``. bias: ``[V]`` or None.

        Returns:
            ``[..., V]`` in the dtype of ``x``.

        Raises:
            What ``torch.nn.functional.linear`` raises.
        """
        return torch.nn.functional.linear(x, self.dequantize(x.dtype), bias)

    def dequantize(self, dtype: torch.dtype | None = None) -> Tensor:
        check_storage("QuantizedTensor", **self.tensors())
        return (self.weight_int8.float() * self.weight_scale[:, None]).to(dtype or self.dtype)

    def requantized(self, dense: Tensor) -> RowsWeight:
        return type(self).from_float(dense.to(self.dtype))

    def cut(self, dim: int, start: int, stop: int) -> RowsWeight:
        q = self.weight_int8.narrow(dim, start, stop - start)
        scale = self.weight_scale[start:stop] if dim == 0 else self.weight_scale
        return self._like(q.clone(memory_format=torch.contiguous_format), scale.clone())

    def _like(self, q: Tensor, scale: Tensor) -> RowsWeight:
        parts = {"weight_int8": q, "weight_scale": scale}
        return type(self)(parts, self.scheme, tuple(q.shape), self.dtype)

    @classmethod
    def join_columns(cls, weights: list[RowsWeight], group_size: int | None = None) -> RowsWeight:
        """The inverse of :meth:`cut` along dim 1.

        Args:
            weights: of one number of rows, the columns of the first in front.
            group_size: nothing, since a row has one scale.
        """
        q = torch.cat([w.weight_int8 for w in weights], 1)
        return weights[0]._like(q, weights[0].weight_scale)

    @classmethod
    def join(cls, weights: list[RowsWeight]) -> RowsWeight:
        q = torch.cat([w.weight_int8 for w in weights])
        return weights[0]._like(q, torch.cat([w.weight_scale for w in weights]))

    def unpacked(self, name: str = "") -> QuantizedWeight:
        scales = self.weight_scale[None]
        return QuantizedWeight.stored_as(
            name, self.weight_int8, scales, scheme=self.scheme, module="embedding"
        )


@rule(torch.ops.aten.embedding.default)
def _(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Only the rows that are asked for become dense."""
    weight, indices = args[:2]
    if isinstance(weight, RowsWeight | PackedWeight):
        return weight.rows(indices)
    return on_dense(func, args, kwargs)
