"""Weights of packed codes that 16-bit activations multiply: what their kinds share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from ..ops.errors import ArgumentTypeError, ArgumentValueError, check_storage
from ..ops.problem import ACTIVATIONS, WEIGHTS
from .scheme import Scheme
from .tensor import QuantizedTensor, part_problems
from .values import refuse_non_finite, refuse_out_of_range

Parts = Mapping[str, Tensor | None]


class WeightOnlyTensor(QuantizedTensor):
    """Packed codes with scales by groups of input channels and, with zero points, a tensor of
    these. Its first parts are those three.

    Attributes:
        dims: of the dense weight.
        weight_types: that the kind stores, names in ``ops.problem.WEIGHTS``.
    """

    dims: ClassVar[int]
    weight_types: ClassVar[tuple[str, ...]] = tuple(
        name for name, weight in WEIGHTS.items() if weight.is_integer
    )
    fuses: ClassVar[tuple[str, ...]] = ACTIVATIONS

    @staticmethod
    def check_group(where: str, group_size: int, channels: int) -> None:
        """Refuse groups that do not fit.

        Args:
            where: what an error names. group_size: input channels that share a scale, -1 for all.
            channels: of the input.

        Raises:
            ValueError: ``channels`` cannot be grouped so.
        """
        raise NotImplementedError

    @classmethod
    def stores(cls, scheme: Scheme, dims: int) -> bool:
        stored = scheme.is_packed and scheme.weight_type in cls.weight_types
        return dims == cls.dims and stored

    @classmethod
    def why_not(cls, scheme: Scheme, shape: tuple[int, ...]) -> str:
        try:
            cls.check_group("scheme", scheme.group_size, shape[1])
        except ValueError as error:
            return str(error).removeprefix("scheme: ")
        return ""

    @classmethod
    def present(cls, scheme: Scheme) -> set[str]:
        packed, scales, zeros = (part.name for part in cls.parts[:3])
        return {packed, scales} | ({zeros} if scheme.has_zeros else set())

    @classmethod
    def checked(
        cls,
        where: str,
        q: Tensor,
        axes: tuple[str, ...],
        scheme: Scheme,
        tensors: Parts,
        in_range: bool = False,
    ) -> dict[str, Tensor]:
        """The ``tensors`` that there are, detached and contiguous, once they fit ``q`` and the
        scheme.

        Args:
            where: what an error names.
            q: int8, values in the range of the scheme's weight type.
            axes: the names of the dimensions of ``q``. scheme: of the weight.
            tensors: the parts of the weight but the packed one; None for what it has not.
            in_range: whether all codes were looked at already, which takes a pass over them.

        Raises:
            ValueError: a tensor does not fit the rest, has lost its storage or holds a value it
                must not.
            TypeError: ``q`` is not int8.
        """
        if q.dim() != len(axes) or q.dtype != torch.int8:
            error = ArgumentTypeError if q.dtype != torch.int8 else ArgumentValueError
            raise error(
                f"{where}: q must be int8 [{', '.join(axes)}], got {q.dtype} {tuple(q.shape)}"
            )
        check_storage(where, q=q, **tensors)
        if not in_range:
            refuse_out_of_range(q, scheme.weight_type, where)
        cls.check_group(where, scheme.group_size, q.shape[1])
        if problems := part_problems(cls, tuple(q.shape), scheme, tensors):
            raise ArgumentValueError(f"{where}: " + "; ".join(problems))
        finite = tuple(part.name for part in cls.parts if part.finite)
        refuse_non_finite(tensors, where, finite)
        return {name: x.detach().contiguous() for name, x in tensors.items() if x is not None}
