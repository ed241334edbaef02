"""Some columns of a weight in GPTQ's act-order: what a rank has where K is shared out."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ..ops.errors import ArgumentValueError
from .integer import IntegerWeight
from .packed import PackedWeight
from .scheme import Scheme
from .tensor import Part


class ActOrderColumns(IntegerWeight):
    """Some columns of a permuted weight (GPTQ act-order): column j belongs to activation
    permutation[j] of the whole, not of a shard of it. So it is no factor of a product before
    somebody has brought the activations in its order, as ``distributed.weight.linear`` does.

    Parts:
        As of ``IntegerWeight``; permutation: int64 ``[K]``, indices of the whole's activations.
    """

    parts: ClassVar[tuple[Part, ...]] = IntegerWeight.parts

    @classmethod
    def stores(cls, scheme: Scheme, dims: int) -> bool:
        return False

    def in_order(self) -> IntegerWeight:
        """The same for activations that are in its order already."""
        parts = {**self.tensors(), "permutation": None}
        return IntegerWeight(parts, self.scheme, self.shape, self.dtype)

    def product(
        self, x: Tensor, bias: Tensor | None = None, activation: str = "identity"
    ) -> Tensor:
        """Refused.

        Raises:
            ValueError: always.
        """
        raise ArgumentValueError(
            "QuantizedTensor: these are some columns of a weight whose columns are permuted (GPTQ "
            "act-order), which activations of the whole width multiply. Hint: mixed_gemm.Linear "
            "does so where torch's RowwiseParallel has cut it and the input is a DTensor"
        )

    def dequantize(self, dtype: torch.dtype | None = None) -> Tensor:
        return self.in_order().dequantize(dtype)

    @classmethod
    def join_columns(  # type: ignore[override]
        cls, weights: list[IntegerWeight], group_size: int | None = None
    ) -> PackedWeight:
        """All columns together are no longer some of them.

        Args:
            weights, group_size: as of the base class.
        """
        return IntegerWeight.join_columns(weights, group_size)  # type: ignore[arg-type]

    def requantized(self, dense: Tensor) -> ActOrderColumns:
        new = self.in_order().requantized(dense)
        return type(self)({**new.tensors(), "permutation": self.permutation}, new.scheme,
                          new.shape, new.dtype)  # fmt: skip


IntegerWeight.columns_in_order = ActOrderColumns
