"""FP8 weights whose activations stay in their dtype: float8_e4m3fn codes, packed as the kernels of
``fpA_fpB_gemm`` read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..ops.errors import ArgumentValueError, dtype_name
from ..ops.floats import gemm_of_weight, pack_codes, unpack_codes
from ..ops.problem import (
    ACTIVATIONS,
    GROUP_STEP,
    LAYOUT_VERSION,
    PAD_K,
    PAD_N,
    num_groups,
    round_up,
)
from . import question
from .exchange import QuantizedWeight
from .fp8 import SCALE_DTYPES, Fp8Weight, lossy_copies
from .fp8_blocks import block_of
from .question import Question
from .rounding_fp8 import FP8
from .scheme import FLOAT8, Scheme
from .tensor import Part, QuantizedTensor, check_columns, narrows
from .values import retagged


class Fp8WeightOnly(QuantizedTensor):
    """``x @ w.T`` of a float8_e4m3fn weight and activations as they are, by ``fpA_fpB_gemm``.

    It is an :class:`Fp8Weight` whose codes are packed: what is no product is done by that one, so
    scales are kept to the bit. Kernels take a scale of each output channel in float32. Scales of
    blocks are rounded once to the dtype of the activations for them, over a power of two for each
    channel: by at most 2^-9 of a scale in bfloat16, 2^-12 in float16, not at all in float32 or
    where scales are powers of two.

    Parts:
        b_packed: uint8 ``[round_up(N, 64), round_up(K, 64)]``.
        weight_scale: ``[N]``, or ``[ceil(N / rows), ceil(K / columns)]`` by block; float32,
            bfloat16 or float16, as it came.
        scales: ``[G, N]``, and factor: float32 ``[N]``, which kernels multiply by; derived.
    """

    kind: ClassVar[str] = "fp8_weight_only"
    parts: ClassVar[tuple[Part, ...]] = (
        Part("b_packed", (torch.uint8,), follows=False, finite=False, rows=0),
        Part("weight_scale", SCALE_DTYPES, follows=False, rows=0),
        Part("scales", rows=1, derived=True),
        Part("factor", (torch.float32,), follows=False, rows=0, derived=True),
    )
    fuses: ClassVar[tuple[str, ...]] = ACTIVATIONS

    b_packed: Tensor
    weight_scale: Tensor
    scales: Tensor
    factor: Tensor

    @classmethod
    def stores(cls, scheme: Scheme, dims: int) -> bool:
        if not Fp8Weight.stores(scheme, dims) or scheme.input_activations is not None:
            return False
        side = scheme.weights
        columns = side.group_size if side.block is None else side.block[1]
        return columns is None or columns % GROUP_STEP == 0

    @classmethod
    def why_not(cls, scheme: Scheme, shape: tuple[int, ...]) -> str:
        return Fp8Weight.why_not(scheme, shape)

    @classmethod
    def present(cls, scheme: Scheme) -> set[str]:
        return {"b_packed", "weight_scale"}

    @classmethod
    def shapes(cls, shape: tuple[int, ...], scheme: Scheme) -> dict[str, tuple[int, ...]]:
        n, k = shape
        return {
            "b_packed": (round_up(n, PAD_N), round_up(k, PAD_K)),
            "weight_scale": Fp8Weight.shapes(shape, scheme)["weight_scale"],
            "scales": (num_groups(k, _group_size(scheme, shape)), n),
            "factor": (n,),
        }

    @classmethod
    def derive(
        cls,
        tensors: Mapping[str, Tensor | None],
        scheme: Scheme,
        shape: tuple[int, ...] = (),
        dtype: torch.dtype | None = None,
    ) -> dict[str, Tensor]:
        scale, block = tensors["weight_scale"], block_of(scheme, shape)
        assert scale is not None and dtype is not None
        if block is None:
            groups = num_groups(shape[1], -1)
            ones = torch.ones(groups, shape[0], dtype=dtype, device=scale.device)
            return {"scales": ones, "factor": scale.float()}
        exact, factor = _over_powers(scale, block[0], shape[0])
        return {"scales": exact.to(dtype).t().contiguous(), "factor": factor}

    @classmethod
    def tag_of(cls, shape: tuple[int, ...], scheme: Scheme, permuted: bool) -> dict[str, Any]:
        tag = Fp8Weight.tag_of(shape, scheme, permuted)
        return {**tag, "layout_version": LAYOUT_VERSION}

    @classmethod
    def renamed(cls, tensors: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
        """As of the base class: codes in rows, as an :class:`Fp8Weight` has them, are packed.

        Args:
            tensors: name -> what the state_dict has. shape: (N, K).
        """
        found = dict(tensors)
        rows = found.get("weight_fp8")
        if type(rows) is not Tensor or rows.dtype != FP8:
            return found
        if tuple(rows.shape) == shape:
            del found["weight_fp8"]
            found["b_packed"] = pack_codes(rows.view(torch.int8), FLOAT8)
        return retagged(found, {"layout_version": LAYOUT_VERSION})

    @classmethod
    def from_float(  # type: ignore[override]
        cls, weight: Tensor, scheme: Scheme, *, dtype: torch.dtype | None = None
    ) -> QuantizedTensor:
        """As of :class:`Fp8Weight`.

        Args:
            weight: float16, bfloat16 or float32 ``[N, K]``.
            scheme: of ``Scheme.fp8(None)``.
            dtype: of the activations; that of ``weight`` when None.
        """
        return cls.of_rows(Fp8Weight.from_float(weight, scheme, dtype=dtype))

    @classmethod
    def from_quantized(cls, *args: Any, **options: Any) -> QuantizedTensor:
        """Pack a weight that is float8 already: the arguments and errors are those of
        :meth:`Fp8Weight.from_quantized`."""
        return cls.of_rows(Fp8Weight.from_quantized(*args, **options))

    @classmethod
    def store(cls, weight: QuantizedWeight, dtype: torch.dtype) -> QuantizedTensor:  # type: ignore[override]
        return cls.of_rows(Fp8Weight.store(weight, dtype))

    @classmethod
    def of_rows(cls, rows: Fp8Weight) -> QuantizedTensor:
        """The same weight, packed; itself where float16 activations do not have its scales, whose
        kernels would lose the least: it is made dense for each product then.

        Args:
            rows: of a scheme that this kind stores.
        """
        return rows if _too_wide(rows, rows.dtype) else cls._packed(rows)

    @classmethod
    def _packed(cls, rows: Fp8Weight) -> Fp8WeightOnly:
        parts = {
            "b_packed": pack_codes(rows.weight_fp8.view(torch.int8), FLOAT8),
            "weight_scale": rows.weight_scale,
        }
        return cls(parts, rows.scheme, tuple(rows.shape), rows.dtype)

    def in_rows(self) -> Fp8Weight:
        """The same weight with its codes in rows."""
        parts = {"weight_fp8": self.weight_fp8, "weight_scale": self.weight_scale}
        return Fp8Weight(parts, self.scheme, tuple(self.shape), self.dtype)

    @property
    def weight_fp8(self) -> Tensor:
        """The codes in rows: float8_e4m3fn ``[N, K]``, unpacked at each call."""
        return unpack_codes(self.b_packed, FLOAT8, *self.shape).view(FP8)

    def question(self, m: int, out: str, where: str) -> Question:
        n, k = self.shape
        size = _group_size(self.scheme, (n, k))
        return question.codes(m, n, k, out, FLOAT8, size, where)

    def product(
        self, x: Tensor, bias: Tensor | None = None, activation: str = "identity"
    ) -> Tensor:
        """``activation(x @ w.T + bias)``.

        Args:
            x: float16, bfloat16 or float32 ``[..., K]``. bias: ``[N]`` or None.
            activation: of ``fpA_fpB_gemm``.

        Returns:
            ``[..., N]`` in the dtype of ``x`` (or of autocast).

        Raises:
            What the op raises.
        """
        check_columns(x, self.shape[1])
        if narrows(x, self.dtype):
            return self.product(x.to(self.dtype), bias, activation).to(torch.float32)
        size = _group_size(self.scheme, (self.shape[0], self.shape[1]))
        options = {"weight": FLOAT8, "group_size": size, "activation": activation}
        return gemm_of_weight(options, x, self.b_packed, self.scales, self.factor, bias, None)

    def dequantize(self, dtype: torch.dtype | None = None) -> Tensor:
        return self.in_rows().dequantize(dtype)

    def requantized(self, dense: Tensor) -> Fp8WeightOnly:
        return self._packed(self.in_rows().requantized(dense))

    def keeping(self, old: Fp8WeightOnly, same: Tensor) -> Fp8WeightOnly:
        return self._packed(self.in_rows().keeping(old.in_rows(), same))

    def with_activations(
        self, scheme: Scheme, *, input_range: tuple[float, float] | None = None
    ) -> Fp8Weight:
        """As of :class:`Fp8Weight`.

        Args:
            scheme: with the same weights. input_range: as of :meth:`Fp8Weight.from_float`.
        """
        return self.in_rows().with_activations(scheme, input_range=input_range)

    def stored_alike(self, other: Tensor) -> bool:
        same = super().stored_alike(other)
        return same and other.weight_scale.dtype == self.weight_scale.dtype  # type: ignore[attr-defined]

    def refuse_parts(self, tensors: Mapping[str, Tensor | None]) -> list[str]:
        """Tell what does not fit: the arguments and errors are those of
        :meth:`Fp8Weight.refuse_parts`."""
        return super().refuse_parts(tensors) + lossy_copies(self, tensors)

    def fitted(self, dtype: torch.dtype) -> Fp8WeightOnly:
        """Itself, where scales of blocks do not lose what a dtype can hold.

        Args:
            dtype: of the activations.

        Raises:
            ValueError: float16 does not have its scales.
        """
        if dtype == torch.float16 and _too_wide(self, dtype):
            raise ArgumentValueError(
                f"QuantizedTensor: the scales of {self.scheme} weights are too far apart for "
                f"{dtype_name(dtype)}. Hint: torch.bfloat16"
            )
        return self

    # --- slices --------------------------------------------------------------------------------

    def scheme_of_rows(self, count: int) -> Scheme:
        return self.in_rows().scheme_of_rows(count)

    def cut(self, dim: int, start: int, stop: int) -> QuantizedTensor:  # type: ignore[override]
        """As of :class:`Fp8Weight`, which a shard is where no kernel takes its blocks: where they
        were cut at no multiple of 16 columns.

        Args:
            dim: 0 for rows, 1 for columns. start, stop: of them.
        """
        return self._of_shard(self.in_rows().cut(dim, start, stop))

    @classmethod
    def join(cls, weights: list[Any]) -> QuantizedTensor:  # type: ignore[override]
        return cls._of_shard(Fp8Weight.join(weights))

    @classmethod
    def join_columns(  # type: ignore[override]
        cls, weights: list[Any], group_size: int | None = None
    ) -> QuantizedTensor:
        return cls._of_shard(Fp8Weight.join_columns(weights, group_size))

    def in_blocks_of(self, rows: int) -> QuantizedTensor:
        """As of :class:`Fp8Weight`.

        Args:
            rows: a multiple of those in a block now.
        """
        return self._of_shard(self.in_rows().in_blocks_of(rows))

    @classmethod
    def _of_shard(cls, rows: Fp8Weight) -> QuantizedTensor:
        return cls.of_rows(rows) if cls.stores(rows.scheme, 2) else rows

    def unpacked(self, name: str = "") -> QuantizedWeight:
        return self.in_rows().unpacked(name)


def _group_size(scheme: Scheme, shape: tuple[int, ...]) -> int:
    """Elements of K that share a scale, -1 for all of them."""
    block = block_of(scheme, shape)
    return -1 if block is None or block[1] >= shape[1] else block[1]


def _over_powers(scale: Tensor, rows: int, n: int) -> tuple[Tensor, Tensor]:
    """(scales ``[N, G]`` over a power of two for each channel, such that the largest magnitude is
    in [1, 2); these powers ``[N]``), both float32.

    Args:
        scale: ``[ceil(N / rows), G]``.
    """
    of_rows = scale.float().repeat_interleave(rows, 0)[:n]
    largest = of_rows.abs().amax(1) if of_rows.shape[1] else of_rows.new_ones(n)
    power = torch.where(largest == 0, 0, torch.frexp(largest).exponent - 1)
    factor = torch.ldexp(torch.ones_like(largest), power)
    return torch.ldexp(of_rows, -power.unsqueeze(1)), factor


def _too_wide(weight: Fp8Weight | Fp8WeightOnly, dtype: torch.dtype) -> bool:
    """Whether scales of a channel are so far apart that the least are subnormal in ``dtype``."""
    block = block_of(weight.scheme, tuple(weight.shape))
    if block is None or dtype != torch.float16 or weight.weight_scale.is_meta:
        return False
    exact, _ = _over_powers(weight.weight_scale, block[0], weight.shape[0])
    return bool(((exact != 0) & (exact.abs() < torch.finfo(dtype).tiny)).any())
