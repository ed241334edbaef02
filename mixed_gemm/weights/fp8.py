"""FP8: float8_e4m3fn weights with a scale for each output channel, for the whole weight or for each
block of it, kept to the bit as files have them.

The file is long because it is one class: how parts are stored, multiplied and cut is one idea, and
what of it needs no weight is in ``fp8_blocks`` and ``rounding_fp8``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..ops.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    check_not_freed,
    check_storage,
    dtype_name,
    shape_text,
    wrong_type,
)
from ..ops.floats import unpack_codes
from ..ops.problem import DTYPES, PAD_K, PAD_N, ceil_div, round_up
from ..ops.scaled import why_not_scaled
from . import question
from .columns import coarser
from .exchange import QuantizedWeight
from .fp8_blocks import (
    Block,
    block_of,
    joined,
    joined_columns,
    rounded,
    scales_of_shard,
    scheme_of_shard,
    scheme_with_rows,
)
from .question import Question
from .rounding_fp8 import FP8, FP8_MAX, MIN_SCALE, dequantize_blocks
from .scheme import FLOAT8, Scheme, Side
from .straight_through import AS_THEY_ARE, BY_ROW, block_size_of, eight_bit_product
from .tensor import (
    Part,
    QuantizedTensor,
    check_columns,
    narrows,
    part_problems,
    under_autocast,
)
from .values import refuse_non_finite, retagged
from .writing import spliced

# Dtypes of scales, as files have them; float32 first, which those made here are.
SCALE_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_PARTS = ("weight_fp8", "weight_scale", "input_scale")


def _is_rounded(side: Side | None) -> bool:
    """Whether activations of this kind can be had: a scale for each row, or one for all."""
    if side is None or (side.type, side.num_bits, side.symmetric) != ("float", 8, True):
        return False
    return side.dynamic or side.strategy == "tensor"


class Fp8Weight(QuantizedTensor):
    """``x @ w.T = scale_x * scale_w * (q_x @ q_w.T)`` with both in float8_e4m3fn, by ``scaled_mm``.
    Gradients pass straight through the rounding of the activations.

    The weight is made dense for each product, and activations stay in their dtype, where the scheme
    does not round them, on GPUs before compute capability 8.9, which multiply no float8, and on
    GPUs where scales are by block, but for blocks of 128 x 128 and activations with a scale for 128
    columns or for the row on compute capability 9.0.

    Parts:
        weight_fp8: float8_e4m3fn ``[N, K]``.
        weight_scale: ``[N]``, or ``[ceil(N / rows), ceil(K / columns)]`` by block; float32,
            bfloat16 or float16, as it came. Casts of the weight leave it alone.
        input_scale: ``[]`` where activations are static, else None.
    """

    kind: ClassVar[str] = "fp8"
    parts: ClassVar[tuple[Part, ...]] = (
        Part("weight_fp8", (FP8,), follows=False, rows=0),
        Part("weight_scale", SCALE_DTYPES, follows=False, rows=0),
        Part("input_scale", SCALE_DTYPES, follows=False),
    )

    weight_fp8: Tensor
    weight_scale: Tensor
    input_scale: Tensor | None

    @classmethod
    def stores(cls, scheme: Scheme, dims: int) -> bool:
        side, asked = scheme.weights, scheme.input_activations
        float8 = scheme.weight_type == FLOAT8 and side.symmetric and side.scale_dtype is None
        shared = side.strategy in ("channel", "tensor")
        shared |= side.strategy == "group" and (side.group_size or 0) > 0
        shared |= side.strategy == "block" and side.block is not None
        rounded = asked is None or _is_rounded(asked)
        return dims == 2 and float8 and shared and rounded and not scheme.has_zeros

    @classmethod
    def why_not(cls, scheme: Scheme, shape: tuple[int, ...]) -> str:
        """Empty: every weight can be stored so. ``scheme`` and ``shape`` as of the base class."""
        return ""

    @classmethod
    def present(cls, scheme: Scheme) -> set[str]:
        side = scheme.input_activations
        static = side is not None and not side.dynamic
        return {"weight_fp8", "weight_scale"} | ({"input_scale"} if static else set())

    @classmethod
    def neutral(cls, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The parts of an empty weight, whose activations are divided by 1.

        Args:
            tensors: parts by name, the input_scale ``[]``.
        """
        if "input_scale" in tensors:
            tensors["input_scale"].fill_(1)
        return tensors

    @classmethod
    def shapes(cls, shape: tuple[int, ...], scheme: Scheme) -> dict[str, tuple[int, ...]]:
        """Part -> its shape. ``shape``: (N, K). ``scheme``: one of those that this kind stores."""
        n, k = shape
        block = block_of(scheme, shape)
        scales = (n,) if block is None else (ceil_div(n, block[0]), ceil_div(k, block[1]))
        return {"weight_fp8": (n, k), "weight_scale": scales, "input_scale": ()}

    @classmethod
    def tag_of(cls, shape: tuple[int, ...], scheme: Scheme, permuted: bool) -> dict[str, Any]:
        """The tag of a weight in a checkpoint, as JSON: all but its tensors.

        Args:
            shape: (N, K). scheme: of the weight. permuted: never.
        """
        side, block = scheme.input_activations, block_of(scheme, shape)
        return {
            "scheme": "fp8",
            "in_features": shape[1],
            "out_features": shape[0],
            "strategy": scheme.weights.strategy,
            "block": None if block is None else list(block),
            "activations": None if side is None else scheme.activations or side.strategy,
        }

    @classmethod
    def from_float(
        cls,
        weight: Tensor,
        scheme: Scheme,
        *,
        input_range: tuple[float, float] | None = None,
        dtype: torch.dtype | None = None,
    ) -> Fp8Weight:
        """Round a weight to nearest: the largest magnitude of what shares a scale becomes 448.

        Args:
            weight: float16, bfloat16 or float32 ``[N, K]``.
            scheme: from ``Scheme.fp8``.
            input_range: least and largest activation, needed where activations are static.
            dtype: of the activations; that of ``weight`` when None.

        Raises:
            ValueError: static activations have no range, or the weight or the range holds NaN or
                Inf.
            TypeError: the weight has another dtype.
        """
        scale = cls._static_scale(scheme, input_range)
        q, weight_scale = rounded(weight, scheme, torch.float32)
        return cls.from_quantized(
            q, weight_scale, scheme=scheme, input_scale=scale, dtype=dtype or weight.dtype
        )

    @classmethod
    def _static_scale(cls, scheme: Scheme, input_range: tuple[float, float] | None) -> float | None:
        """The scale of activations of a range; None where calls find their own, or round none."""
        if "input_scale" not in cls.present(scheme):
            return None
        if input_range is None or not all(map(math.isfinite, input_range)):
            raise ArgumentValueError(
                f"mixed_gemm.Fp8Weight: activations='static' needs a finite input_range, got "
                f"{input_range}. Hint: mixed_gemm.quantize_(model, 'fp8', "
                "activations='static', calibration=batches) finds it"
            )
        return max(max(map(abs, input_range)) / FP8_MAX, MIN_SCALE)

    def with_activations(
        self, scheme: Scheme, *, input_range: tuple[float, float] | None = None
    ) -> Fp8Weight:
        """The same weight for activations as another scheme rounds them.

        Args:
            scheme: with the same weights. input_range: as of :meth:`from_float`.

        Raises:
            ValueError: static activations have no range.
        """
        return type(self).from_quantized(
            self.weight_fp8, self.weight_scale, scheme=scheme,
            input_scale=self._static_scale(scheme, input_range), dtype=self.dtype,
        )  # fmt: skip

    @classmethod
    def from_quantized(
        cls,
        weight: Tensor,
        weight_scale: Tensor,
        *,
        scheme: Scheme,
        input_scale: float | Tensor | None = None,
        dtype: torch.dtype | None = None,
        where: str = "mixed_gemm.Fp8Weight.from_quantized",
    ) -> Fp8Weight:
        """Take a weight that is float8 already, as a checkpoint has it: every bit of it is kept.

        Args:
            weight: float8_e4m3fn ``[N, K]``.
            weight_scale: float32, bfloat16 or float16: ``[N]``, ``[N, 1]`` or one element; where
                the scheme has blocks, ``[ceil(N / rows), ceil(K / columns)]``.
            scheme: from ``Scheme.fp8``.
            input_scale: of static activations, and only of those.
            dtype: of the activations; torch's default when None.
            where: what an error names.

        Raises:
            ValueError: a tensor does not fit the rest, has lost its storage or holds NaN or Inf, or
                input_scale is missing or too much.
            TypeError: ``weight`` is not float8_e4m3fn.
        """
        if weight.dim() != 2 or weight.dtype != FP8:
            error = ArgumentTypeError if weight.dtype != FP8 else ArgumentValueError
            raise error(
                f"{where}: weight must be float8_e4m3fn [N, K], got {dtype_name(weight.dtype)} "
                f"{shape_text(weight.shape)}"
            )
        static = "input_scale" in cls.present(scheme)
        if static != (input_scale is not None):
            raise ArgumentValueError(
                f"{where}: activations={scheme.activations!r} needs "
                f"{'input_scale' if static else 'no input_scale'}, got {input_scale}"
            )
        check_storage(where, weight=weight, weight_scale=weight_scale)
        n, k = weight.shape
        weight_scale = weight_scale.detach()
        if block_of(scheme, (n, k)) is None and weight_scale.numel() in (1, n):
            weight_scale = weight_scale.reshape(-1).expand(n)
        tensors: dict[str, Tensor | None] = {
            "weight_fp8": weight.detach().contiguous(),
            "weight_scale": weight_scale.contiguous(),
        }
        if isinstance(input_scale, Tensor):
            tensors["input_scale"] = input_scale.detach().to(weight.device).reshape(())
        elif input_scale is not None:
            tensors["input_scale"] = torch.tensor(input_scale, device=weight.device).float()
        if problems := part_problems(cls, (n, k), scheme, tensors):
            raise ArgumentValueError(f"{where}: " + "; ".join(problems))
        refuse_non_finite(tensors, where, _PARTS)
        return cls(tensors, scheme, (n, k), dtype or torch.get_default_dtype())

    @classmethod
    def store(cls, weight: QuantizedWeight, dtype: torch.dtype) -> Fp8Weight:
        """Take a weight of a checkpoint.

        Args:
            weight: float8 of a scheme that this kind stores. dtype: of the activations.

        Raises:
            ValueError: its columns are permuted, or it has a pre_scale, which no file of this kind
                has.
        """
        where = f"mixed_gemm.Linear: {weight.name}"
        if weight.permutation is not None or weight.pre_scale is not None:
            raise ArgumentValueError(
                f"{where} has a permutation of its columns or a pre_scale, which float8 weights do "
                "not take. Hint: weight.requantize() makes it integers"
            )
        block = block_of(weight.scheme, weight.shape)
        return cls.from_quantized(
            weight.q,
            weight.scales[0] if block is None else weight.scales.t()[:: block[0]],
            scheme=weight.scheme,
            input_scale=weight.input_scale,
            dtype=dtype,
            where=where,
        )

    @property
    def rounds(self) -> bool:
        """Whether products run on ``scaled_mm``, where the device has it: activations are
        rounded."""
        return self.scheme.input_activations is not None

    @property
    def block_size(self) -> tuple[int, int] | None:
        """The ``block_size`` of ``scaled_mm``, where it takes scales of blocks, of the weight or of
        activations."""
        if self._by_block or self._shared > 0:
            return block_size_of(self._product_block, self._shared)
        return None

    @property
    def _shared(self) -> int:
        """Columns of the activations that share a scale, or that a row does, or all of them."""
        side = self.scheme.input_activations
        by_group = side is not None and side.strategy == "group"
        return side.group_size or BY_ROW if by_group and side is not None else BY_ROW

    @property
    def _by_block(self) -> bool:
        return block_of(self.scheme, self.shape) is not None

    @property
    def _blocks(self) -> tuple[Tensor, Block]:
        """(scales ``[rows of blocks, columns of blocks]``, rows and columns of a block)."""
        block = block_of(self.scheme, self.shape)
        if block is None:
            return self.weight_scale.unsqueeze(1), (1, self.shape[1])
        return self.weight_scale, block

    @property
    def _product_block(self) -> Block:
        """Rows and columns of a block, of which activations have whole ones."""
        if self._by_block:
            return self._blocks[1]
        return 1, round_up(self.shape[1], self._shared or self.shape[1] or 1)

    def question(self, m: int, out: str, where: str) -> Question:
        n, k = self.shape
        if self.rounds:
            return question.float8(m, n, k, out, where, self.block_size)
        why = f"no kernel takes float8 weights as they are here ({self.scheme})"
        return question.dense(m, n, k, out, where, "float8 weight", why)

    def product(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """``x @ w.T + bias``.

        Args:
            x: float16, bfloat16 or float32 ``[..., K]``. bias: ``[N]`` or None.

        Returns:
            ``[..., N]`` in the dtype of ``x`` (or of autocast).

        Raises:
            ValueError: ``x`` has no K columns. TypeError: it has another dtype.
        """
        if narrows(x, self.dtype):
            return self.product(x.to(self.dtype), bias).to(torch.float32)
        _check_input(x, self.shape[1])
        check_not_freed("mixed_gemm.Linear", input=x, bias=bias, **self.tensors())
        x, bias = under_autocast(x, bias)
        size = self.block_size
        rounded = self.rounds and not why_not_scaled(FP8, size, x.device)
        scale = self.input_scale
        weight = self.weight_fp8
        if rounded and size is None:
            static = None if scale is None else scale.float()
            scales = self.weight_scale.float()
            return eight_bit_product(x, weight, scales, bias, None, static, None)
        scales, block = self._blocks[0], self._product_block
        static = scale.float() if rounded and scale is not None else None
        shared = self._shared if rounded else AS_THEY_ARE
        return eight_bit_product(
            x, weight, scales, bias, None, static, None, block=block, shared=shared
        )

    def dequantize(self, dtype: torch.dtype | None = None) -> Tensor:
        """The dense ``[N, K]`` weight, computed in float32 and rounded once.

        Args:
            dtype: of the result; that of the weight when None.

        Returns:
            ``[N, K]``.

        Raises:
            ValueError: a part has lost its storage.
        """
        scale = self.weight_scale
        check_storage("QuantizedTensor", weight_fp8=self.weight_fp8, weight_scale=scale)
        scales, block = self._blocks
        return dequantize_blocks(self.weight_fp8, scales, block, dtype or self.dtype)

    def requantized(self, dense: Tensor) -> Fp8Weight:
        """A dense weight rounded to nearest as this one is stored.

        Args:
            dense: float ``[N, K]``.
        """
        q, scale = rounded(dense.float(), self.scheme, self.weight_scale.dtype)
        return self._like(q, scale, self.scheme)

    def keeping(self, old: Fp8Weight, same: Tensor) -> Fp8Weight:
        """As of the base class; none of the rows where all of them share a scale.

        Args:
            old: ``[M, K]``. same: bool ``[N]``.
        """
        if self.scheme.weights.strategy == "tensor":
            return self
        if not self._by_block:
            return super().keeping(old, same)
        # A block of rows is kept as a whole or not at all.
        n, (rows, _) = self.shape[0], self._blocks[1]
        if rows != old._blocks[1][0]:
            return self
        padded = torch.nn.functional.pad(same, (0, -n % rows), value=True)
        blocks = padded.view(-1, rows).all(1)
        kept = blocks.repeat_interleave(rows)[:n]
        q = spliced(self.weight_fp8, old.weight_fp8, kept, 0)
        return self._like(q, spliced(self.weight_scale, old.weight_scale, blocks, 0), self.scheme)

    def _like(self, q: Tensor, scale: Tensor, scheme: Scheme) -> Fp8Weight:
        tensors = {**self.tensors(), "weight_fp8": q, "weight_scale": scale}
        return type(self)(tensors, scheme, tuple(q.shape), self.dtype)

    def stored_alike(self, other: Tensor) -> bool:
        """As of the base class, and the scales have the same dtype too.

        Args:
            other: ``[N, K]``, or any tensor.
        """
        same = super().stored_alike(other)
        return same and other.weight_scale.dtype == self.weight_scale.dtype  # type: ignore[attr-defined]

    def refuse_parts(self, tensors: Mapping[str, Tensor | None]) -> list[str]:
        """As of the base class; and scales that would be rounded by being copied into those here.

        Args:
            tensors: parts by name, in the shapes of ``shapes``, and "bias" ``[N]``.

        Returns:
            What does not fit, in words; nothing is raised.

        Raises:
            Nothing.
        """
        return super().refuse_parts(tensors) + lossy_copies(self, tensors)

    def __getstate__(self) -> dict[str, Any]:
        """For pickle, which writes float8 storages so that torch 2.13 cannot read them."""
        return {**super().__getstate__(), "weight_fp8": self.weight_fp8.view(torch.uint8)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "weight_fp8": state["weight_fp8"].view(FP8)})

    @classmethod
    def renamed(cls, tensors: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
        """As of the base class: codes that are packed, as of a weight with activations in their
        dtype, are laid in rows.

        Args:
            tensors: name -> what the state_dict has. shape: (N, K).
        """
        found = dict(tensors)
        packed = found.get("b_packed")
        padded = round_up(shape[0], PAD_N), round_up(shape[1], PAD_K)
        if type(packed) is not Tensor or tuple(packed.shape) != padded:
            return found
        del found["b_packed"]
        found["weight_fp8"] = unpack_codes(packed, FLOAT8, *shape).view(FP8)
        return retagged(found, {"layout_version": None})

    # --- slices --------------------------------------------------------------------------------

    def scheme_of_rows(self, count: int) -> Scheme:
        """The scheme of one of the shards of ``count`` rows that :meth:`cut` makes of this weight.

        Args:
            count: of rows, at least one.
        """
        whole = count == self.shape[0]
        return self.scheme if whole else scheme_of_shard(self.scheme, self.shape, 0, count)

    def cut(self, dim: int, start: int, stop: int) -> Fp8Weight:
        """Rows or columns, with storage of their own. Where a block would be cut in two, the blocks
        of the shard are smaller ones with the same scales.

        Args:
            dim: 0 for rows, 1 for columns. start, stop: of them.
        """
        q = self.weight_fp8.narrow(dim, start, stop - start)
        q = q.clone(memory_format=torch.contiguous_format)
        if not self._by_block:
            scale = self.weight_scale[start:stop] if dim == 0 else self.weight_scale
            return self._like(q, scale.clone(), self.scheme)
        if (start, stop) == (0, self.shape[dim]):
            return self._like(q, self.weight_scale.clone(), self.scheme)
        scales, block = self._blocks
        scheme = scheme_of_shard(self.scheme, self.shape, dim, start, stop)
        size = (block_of(scheme, self.shape) or block)[dim]
        return self._like(q, scales_of_shard(scales, block, dim, size, (start, stop)), scheme)

    @classmethod
    def join(cls, weights: list[Any]) -> Fp8Weight:
        """The inverse of :meth:`cut` along dim 0, up to the size of blocks.

        Args:
            weights: shards in the order of their rows, of this kind or ``Fp8WeightOnly``.
        """
        weights = [w.in_rows() for w in weights]
        first: Fp8Weight = weights[0]
        q = torch.cat([w.weight_fp8 for w in weights])
        if not first._by_block:
            return first._like(q, torch.cat([w.weight_scale for w in weights]), first.scheme)
        scales, rows = joined([(*w._blocks, w.shape[0]) for w in weights])
        return first._like(q, scales, scheme_of_shard(first.scheme, first.shape, 0, rows))

    def in_rows(self) -> Fp8Weight:
        """Itself: its codes lie in rows."""
        return self

    def in_blocks_of(self, rows: int) -> Fp8Weight:
        """The same with so many rows in a block, whose scales repeat in the blocks it has.

        Args:
            rows: a multiple of those in a block now.

        Raises:
            ValueError: rows that are to share a scale have several.
        """
        scales, block = self._blocks
        scheme = scheme_with_rows(self.scheme, rows)
        if rows == block[0] or not self._by_block:
            return self
        return self._like(self.weight_fp8, coarser(scales, block[0], rows, self.shape[0]), scheme)

    @classmethod
    def join_columns(cls, weights: list[Any], group_size: int | None = None) -> Fp8Weight:
        """The inverse of :meth:`cut` along dim 1.

        Args:
            weights: of one number of rows, the columns of the first in front.
            group_size: columns of a block of the result, where there are blocks; as many as all
                shards allow when None.

        Raises:
            ValueError: blocks have other scales than ``group_size`` needs.
        """
        weights = [w.in_rows() for w in weights]
        first: Fp8Weight = weights[0]
        q = torch.cat([w.weight_fp8 for w in weights], 1)
        if not first._by_block:
            return first._like(q, first.weight_scale, first.scheme)
        fine, scales = joined_columns([(*w._blocks, w.shape[1]) for w in weights])
        size = fine if group_size is None else group_size
        scales = coarser(scales.t(), fine, size, q.shape[1]).t().contiguous()
        return first._like(q, scales, first.scheme.with_group_size(size))

    def unpacked(self, name: str = "") -> QuantizedWeight:
        """As checkpoint formats take it, every bit the same.

        Args:
            name: of the layer in a checkpoint.
        """
        (scales, (rows, columns)), side = self._blocks, self.scheme.weights
        n, k = self.shape
        strategy = side.strategy if side.strategy == "tensor" else ""
        if strategy and not bool((scales == scales[0]).all()):
            strategy = ""  # shards that were written to one by one have scales of their own
        return QuantizedWeight(
            name=name,
            q=self.weight_fp8,
            scales=scales.repeat_interleave(rows, 0)[:n].t().contiguous(),
            weight=FLOAT8,
            group_size=-1 if columns >= k else columns,
            strategy=strategy,
            block=side.block,
            input_activations=self.scheme.input_activations,
            input_scale=self.input_scale,
        )


def lossy_copies(weight: QuantizedTensor, tensors: Mapping[str, Tensor | None]) -> list[str]:
    """Scales that would be rounded by being copied into those of a weight, in words.

    Args:
        weight: of float8. tensors: parts by name.
    """
    problems = []
    for name in ("weight_scale", "input_scale"):
        mine, given = weight.tensors().get(name), tensors.get(name)
        if mine is None or given is None or given.dtype not in SCALE_DTYPES:
            continue
        if torch.promote_types(mine.dtype, given.dtype) != mine.dtype:
            problems.append(
                f"{name} must be {mine.dtype} as in this weight, which would round it, got "
                f"{given.dtype}"
            )
    return problems


def _check_input(x: Tensor, k: int) -> None:
    """Said here, since torch's operators read it before one of ours does."""
    if x.dtype not in DTYPES:
        expected = "be float16, bfloat16 or float32"
        wrong_type("mixed_gemm.Linear", "input", expected, dtype_name(x.dtype))
    check_columns(x, k)
