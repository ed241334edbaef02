"""How a ``QuantizedWeight`` may be stored, word by word, and what its tensors must be for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..ops.problem import DTYPES, WEIGHTS, ZERO_MODES, ceil_div, integer_weight
from .rounding_fp8 import FP8
from .scheme import FLOAT8, Scheme, Side

if TYPE_CHECKING:
    from .exchange import QuantizedWeight


@dataclass(frozen=True)
class Words:
    """A scheme in the words that the constructor of ``QuantizedWeight`` takes, each with the
    meaning it has there."""

    weight: str = "int4"
    group_size: int = -1
    zero_mode: str = "none"
    strategy: str = ""
    block: tuple[int, int] | None = None
    input_activations: Side | None = None
    scale_dtype: str | None = None

    @classmethod
    def of(cls, scheme: Scheme, k: int) -> Words:
        """The words for a weight with ``k`` columns that is stored by ``scheme``."""
        return cls(
            scheme.weight_type,
            group_columns(scheme, k),
            scheme.zero_mode,
            whole_strategy(scheme),
            scheme.weights.block,
            scheme.input_activations,
            scheme.weights.scale_dtype,
        )

    def scheme(self) -> Scheme:
        """The scheme that these words say."""
        return Scheme.of_file(
            self.weight,
            self.group_size,
            self.zero_mode,
            strategy=self.strategy,
            block=self.block,
            input_activations=self.input_activations,
            scale_dtype=self.scale_dtype,
        )


def rounded_scheme(k: int, bits: int = 8, group_size: int = 128) -> Scheme:
    """The scheme of a weight once ``QuantizedWeight.requantize`` has rounded it.

    Args:
        k: columns of the weight. bits, group_size: as of ``requantize``.
    """
    return Scheme.of_file(integer_weight(bits), group_size if group_size <= k else -1)


def group_columns(scheme: Scheme, k: int) -> int:
    """Elements of K that share a scale, of a weight with ``k`` columns; -1 is all of them."""
    if scheme.weights.block is None:
        return scheme.group_size
    columns = scheme.weights.block[1]
    return -1 if columns >= k else columns


def whole_strategy(scheme: Scheme) -> str:
    """ "tensor" where one scale serves the whole weight, "tensor_group" where one does beside those
    of groups; else empty."""
    strategy = scheme.weights.strategy
    return strategy if strategy in ("tensor", "tensor_group") else ""


def problems_of(weight: QuantizedWeight, words: Words) -> list[str]:
    """Why its tensors and these words do not fit each other, but for values that only a look at all
    of them finds; empty when they do."""
    if weight.q.dim() != 2 or weight.q.dtype not in (torch.int8, FP8) or weight.q.numel() == 0:
        return [f"q must be int8 or float8_e4m3fn [N, K], got {weight.q.dtype} {weight.shape}"]
    n, k = weight.shape
    problems = []
    if words.weight not in ((FLOAT8,) if weight.is_fp8 else WEIGHTS):
        problems.append(_type_problem(weight, words))
    if words.group_size != -1 and not 0 < words.group_size <= k:
        problems.append(f"group_size must be -1 or in 1..K={k}, got {words.group_size}")
        return problems
    if words.zero_mode not in ZERO_MODES or (weight.zeros is None) != (words.zero_mode == "none"):
        problems.append(
            f"zero_mode must be one of {ZERO_MODES}, and 'none' exactly without zeros, got "
            f"{words.zero_mode!r} {'without' if weight.zeros is None else 'with'} zeros"
        )
    known = WEIGHTS.get(words.weight)
    if words.zero_mode != "none" and known is not None and not known.is_integer:
        problems.append(f"zero_mode must be 'none' for {words.weight}, got {words.zero_mode!r}")
    groups = (1 if words.group_size == -1 else ceil_div(k, words.group_size), n)
    if (words.strategy == "tensor_group") != (weight.global_scale is not None):
        problems.append("global_scale must be given exactly with the strategy 'tensor_group'")
    factors = weight.global_scale
    if factors is not None and (tuple(factors.shape) != (n,) or factors.dtype != torch.float32):
        found = f"{factors.dtype} {tuple(factors.shape)}"
        problems.append(f"global_scale must be float32 ({n},), got {found}")
    shapes = {"scales": groups, "zeros": groups, "bias": (n,), "pre_scale": (k,)}
    for field, shape in shapes.items():
        tensor: Tensor | None = getattr(weight, field)
        if tensor is not None and (tuple(tensor.shape) != shape or tensor.dtype not in DTYPES):
            problems.append(
                f"{field} must be float16, bfloat16 or float32 {shape}, got {tensor.dtype} "
                f"{tuple(tensor.shape)}"
            )
    if weight.zeros is not None and weight.zeros.dtype != weight.scales.dtype:
        problems.append(f"zeros must be {weight.scales.dtype} as scales, got {weight.zeros.dtype}")
    if words.block is not None:
        problems += _block_problems(weight, words, words.block)
    order = weight.permutation
    if order is not None and (order.dtype != torch.int64 or tuple(order.shape) != (k,)):
        found = f"{order.dtype} {tuple(order.shape)}"
        problems.append(f"permutation must be int64 ({k},), got {found}")
    return problems


def _type_problem(weight: QuantizedWeight, words: Words) -> str:
    """In the words of ``bits``, where these say it."""
    bits = words.weight.removeprefix("int")
    if bits.lstrip("-").isdecimal():
        return f"bits must be 4 or 8 (8 for float8), got {bits}"
    expected = FLOAT8 if weight.is_fp8 else " or ".join(WEIGHTS)
    return f"weight must be {expected} where q is {weight.q.dtype}, got {words.weight!r}"


def _block_problems(weight: QuantizedWeight, words: Words, block: tuple[int, int]) -> list[str]:
    rows, columns = block
    size = -1 if columns >= weight.shape[1] else columns
    if not weight.is_fp8 or rows < 1 or columns < 1 or words.group_size != size:
        return [
            "block must be (rows, group_size) of float8 weights, got "
            f"{block} with group_size={words.group_size} of {weight.q.dtype}"
        ]
    if weight.scales.is_meta or weight.scales.shape[1] != weight.shape[0]:
        return []
    shared = weight.scales[:, ::rows].repeat_interleave(rows, 1)[:, : weight.shape[0]]
    if not torch.equal(shared, weight.scales):
        return [f"scales must be the same for the {rows} rows of a block {block}"]
    return []
