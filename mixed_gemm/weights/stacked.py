"""``StackedWeight``: the weights of experts, stacked, as products of all of them read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..ops.errors import ArgumentValueError, dtype_name, wrong_type, wrong_value
from ..ops.grouped import grouped_fpA_fpB_gemm, grouped_fpA_intB_gemm
from ..ops.problem import PAD_N
from .floats import FloatWeight
from .integer import IntegerWeight
from .packed import PackedWeight
from .scheme import Scheme

_BY_GROUP = ("scales", "zeros")  # parts [G, N]; others than b_packed are [N]


@dataclass(frozen=True)
class StackedWeight:
    """The weights of E experts, [N, K] each, of one scheme.

    Attributes:
        b_packed: uint8 ``[E, round_up(N, 64), W]``, a weight of ``pack_weights`` or ``pack_codes``
            for each expert.
        scales: ``[E, G, N]`` in the dtype of activations.
        zeros: ``[E, G, N]``, factor: float32 ``[E, N]``, bias: ``[E, N]``; each may be None.
        permutation: int64 ``[E, K]`` or None: column j of the codes of an expert belongs to
            activation permutation[expert, j] (GPTQ act-order). Those of :meth:`of` have none.
        scheme: of every expert.
    """

    b_packed: Tensor
    scales: Tensor
    scheme: Scheme
    zeros: Tensor | None = None
    factor: Tensor | None = None
    bias: Tensor | None = None
    permutation: Tensor | None = None

    def __post_init__(self) -> None:
        self.scheme.work_out_options()

    @property
    def count(self) -> int:
        """E."""
        return self.b_packed.shape[0]

    @classmethod
    def of(
        cls,
        weights: Sequence[Sequence[PackedWeight]],
        biases: Sequence[Sequence[Tensor | None]] | None = None,
    ) -> StackedWeight:
        """Copy the weights of experts behind each other.

        Args:
            weights: of each expert those whose output channels lie beside each other, such as gate
                and up, ``[N, K]`` each. biases: ``[N]`` of each, in their order; all or none.

        Raises:
            ValueError: they cannot be stacked, see :meth:`why_not`, or biases do not fit.
        """
        if not weights or not weights[0] or any(len(x) != len(weights[0]) for x in weights):
            raise ArgumentValueError(
                "mixed_gemm.StackedWeight.of: weights must be as many of each expert, at least one"
            )
        flat = [weight for row in weights for weight in row]
        reason = cls.why_not(flat, len(weights[0]))
        if reason:
            raise ArgumentValueError(f"mixed_gemm.StackedWeight.of: weights must {reason}")
        given = [[x for x in row if x is not None] for row in biases or ()]
        if any(given) and [len(x) for x in given] != [len(x) for x in weights]:
            raise ArgumentValueError(
                "mixed_gemm.StackedWeight.of: biases must be given for all weights or for none"
            )
        first = weights[0][0]
        for bias in (x for row in given for x in row):
            _refuse_bias(bias, first)
        names = [x.name for x in first.parts if x.name in first.tensors()]
        with torch.no_grad():
            made = {
                name: _stacked([[getattr(x, name) for x in row] for row in weights], name)
                for name in names
                if name != "global_scale"  # which is in the factor
            }
            if any(given):
                made["bias"] = _stacked(given, "bias")
        return cls(scheme=first.scheme, **made)

    @staticmethod
    def why_not(weights: Sequence[object], beside: int = 1) -> str:
        """Why weights cannot be stacked, in words that follow "weights must"; empty where they can.

        Args:
            weights: of all experts. beside: how many of them make the channels of an expert.
        """
        first = weights[0]
        if type(first) not in (IntegerWeight, FloatWeight):
            return f"be packed integers, MXFP4 or NVFP4, got {type(first).__name__}"
        assert isinstance(first, PackedWeight)
        if beside > 1 and first.shape[0] % PAD_N != 0:
            return f"have a multiple of {PAD_N} rows to lie beside others, got {first.shape[0]}"
        alike = (first.scheme, first.shape, first.dtype, first.device)
        for x in weights:
            if type(x) is not type(first):
                return f"be of one kind, got {type(first).__name__} and {type(x).__name__}"
            assert isinstance(x, PackedWeight)
            if (x.scheme, x.shape, x.dtype, x.device) != alike:
                return f"have one scheme, shape, dtype and device, got {first!r} and {x!r}"
            if x.permutation is not None or x.pre_scale is not None:
                return "take activations as they are, got a permutation or a pre_scale"
        return ""

    def product(self, rows: Tensor, offs: Tensor) -> Tensor:
        """Each row times the weight of its expert, and the bias.

        Args:
            rows: ``[M, K]``, sorted by expert. offs: int32 ``[E]``, where the rows of each end.

        Returns:
            ``[M, N]`` in the dtype of ``rows``.

        Raises:
            TypeError, ValueError: ``permutation`` has another dtype, shape or device; and what the
                op raises.
        """
        packed, scales, options = self.b_packed, self.scales, self.scheme.gemm_options
        if self.permutation is not None:
            _check_order(self.permutation, self.count, rows)
            rows = _ordered(rows, offs, self.permutation)
        if "weight" in options:
            return grouped_fpA_fpB_gemm(
                rows, packed, scales, offs, self.factor, self.bias, **options
            )
        return grouped_fpA_intB_gemm(rows, packed, scales, offs, self.zeros, self.bias, **options)

    def parts_of(self, expert: int, first: int, rows: int) -> dict[str, Tensor]:
        """The parts of some of an expert's channels as views.

        Args:
            expert: its number. first: channel, a multiple of 64. rows: how many.
        """
        padded = -(-rows // PAD_N) * PAD_N
        found = {"b_packed": self.b_packed[expert, first : first + padded]}
        for name in ("scales", "zeros"):
            part = getattr(self, name)
            if part is not None:
                found[name] = part[expert, :, first : first + rows]
        for name in ("factor", "bias"):
            part = getattr(self, name)
            if part is not None:
                found[name] = part[expert, first : first + rows]
        return found


def _ordered(rows: Tensor, offs: Tensor, permutation: Tensor) -> Tensor:
    """Put the columns of each row in the order of its expert, without a word from the host, by 8
    bytes of index for each number. Rows of no expert, behind the last, are in any order.

    Args:
        rows: ``[M, K]``, sorted by expert. offs: int32 ``[E]``. permutation: int64 ``[E, K]``.
    """
    numbers = torch.arange(rows.shape[0], dtype=offs.dtype, device=offs.device)
    expert = torch.searchsorted(offs, numbers, right=True).clamp(max=len(permutation) - 1)
    return rows.gather(1, permutation[expert])


def _check_order(permutation: Tensor, experts: int, rows: Tensor) -> None:
    """Refuse an order that ``gather`` would take for another one. Its numbers are not looked at:
    the host would have to wait for them."""
    where, wanted = "mixed_gemm.StackedWeight.product", f"[{experts}, {rows.shape[1]}]"
    if permutation.dtype != torch.int64:
        wrong_type(where, "permutation", "be int64", dtype_name(permutation.dtype))
    if permutation.shape != (experts, rows.shape[1]) or permutation.device != rows.device:
        given = f"{list(permutation.shape)} on {permutation.device}"
        wrong_value(where, "permutation", f"be {wanted} on {rows.device}", given)


def _refuse_bias(bias: Tensor, weight: PackedWeight) -> None:
    form = (list(bias.shape), bias.dtype, bias.device)
    wanted = ([weight.shape[0]], weight.dtype, weight.device)
    if form != wanted:
        said = [f"{x} {dtype_name(dtype)} on {device}" for x, dtype, device in (wanted, form)]
        raise ArgumentValueError(
            f"mixed_gemm.StackedWeight.of: biases must be {said[0]} each, got {said[1]}"
        )


def _stacked(rows: Sequence[Sequence[Tensor]], name: str) -> Tensor:
    """Parts of experts behind each other, those of an expert beside each other, copied one by one:
    no more memory than they take, twice.

    Args:
        rows: of each expert the parts of its weights. name: of the part.
    """
    first, dim = rows[0][0], 1 if name in _BY_GROUP else 0
    shape = list(first.shape)
    shape[dim] = sum(x.shape[dim] for x in rows[0])
    made = torch.empty(len(rows), *shape, dtype=first.dtype, device=first.device)
    for out, row in zip(made, rows, strict=True):
        start = 0
        for part in row:
            out.narrow(dim, start, part.shape[dim]).copy_(part)
            start += part.shape[dim]
    return made
