"""The tensors of experts as files of compressed-tensors have them, stacked by vLLM's loader, and as
``StackedWeight`` has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...ops.repack import gptq_repack
from ...weights.rounding_fp8 import FP8
from ...weights.scheme import Scheme
from .experts_layout import FACTOR, Packed, Part, stacked, word
from .layers import float4_weight, powers_of_two, unpack_rows

PACKED, SCALE, ZEROS = "weight_packed", "weight_scale", "weight_zero_point"
SHAPE, WHOLE, WHOLE_INPUT = "weight_shape", "weight_global_scale", "input_global_scale"
_FORMAT = "pack-quantized"  # the format of integers in compressed-tensors
_PLAIN_ORDERS = (None, False, "weight", "static")  # act-order that leaves groups side by side
MXFP4, NVFP4 = Scheme.float4("e8m0", 32), Scheme.float4("e4m3", 16)


def compressed_tensors(
    weights: Any, input_activations: Any, format: str | None
) -> CompressedTensorsLayout | str:
    """Return how a file has its experts; a text says why that is nothing that we read.

    Args:
        weights, input_activations: ``QuantizationArgs``; the latter None where activations stay as
            they are.
        format: of the packed weights, in the words of compressed-tensors.
    """
    scheme = _scheme_of(weights)
    if isinstance(scheme, str):
        return scheme
    if input_activations is not None:
        return "activations of experts must stay in their dtype"
    if scheme.weights.type == "int" and format != _FORMAT:
        return f"integers must be stored as {_FORMAT}, got {format}"
    return CompressedTensorsLayout(scheme)


def _scheme_of(args: Any) -> Scheme | str:
    kind, strategy, bits = word(args.type), word(args.strategy), args.num_bits
    if args.dynamic:
        return "weights must be rounded ahead"
    if kind == "float":
        found = {(32, "group"): MXFP4, (16, "tensor_group"): NVFP4}.get((args.group_size, strategy))
        if bits != 4 or found is None or not args.symmetric:
            return f"floats must be MXFP4 or NVFP4, got {bits} bits by {strategy}"
        return found
    if strategy not in ("group", "channel"):
        return f"scales of weights must be for a group or for a channel, got {strategy}"
    if word(args.actorder) not in _PLAIN_ORDERS:
        return f"act-order must leave groups side by side, got {word(args.actorder)}"
    size = -1 if strategy == "channel" else args.group_size
    return why_not_integers(bits, size) or Scheme.weight_only(
        bits, size, "none" if args.symmetric else "sub"
    )


def why_not_integers(bits: Any, size: Any) -> str:
    """Tell why no kernel multiplies integers; empty where one does.

    Args:
        bits: of one. size: elements of K that share a scale, -1 for all.
    """
    if bits not in (4, 8):
        return f"bits must be 4 or 8, got {bits}"
    if not isinstance(size, int) or (size != -1 and (size < 16 or size % 16)):
        return f"group_size must be -1 (per channel) or a positive multiple of 16, got {size}"
    return ""


@dataclass(frozen=True)
class CompressedTensorsLayout:
    """The experts of a file of compressed-tensors; a ``Layout``."""

    scheme: Scheme
    in_turns: ClassVar[bool] = False
    has_biases: ClassVar[bool] = False
    has_order: ClassVar[bool] = False
    names: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"b_packed": PACKED, "scales": SCALE, "zeros": ZEROS, "factor": FACTOR}
    )

    @property
    def packs_channels(self) -> bool:
        return self.scheme.has_zeros

    @property
    def ends_on_cpu(self) -> bool:
        """vLLM 0.32 takes Marlin for MXFP4 there."""
        return self.scheme.weights.type == "float"

    def parts(self, count: int, n: int, k: int, dtype: torch.dtype, stem: str) -> dict[str, Part]:
        scheme = self.scheme
        groups = 1 if scheme.group_size == -1 else k // scheme.group_size
        if scheme.weights.type == "int":
            by, per_word = scheme.weights.strategy, 32 // scheme.weights.num_bits
            parts = {
                PACKED: Part(torch.empty(count, n, k // per_word, dtype=torch.int32), by),
                SCALE: Part(torch.ones(count, n, groups, dtype=dtype), by),
                SHAPE: Part(torch.empty(count, 2), by),
            }
            if scheme.has_zeros:
                words = torch.zeros(count, n // per_word, groups, dtype=torch.int32)
                parts[ZEROS] = Part(words, by)
            return parts
        scale_dtype = torch.uint8 if scheme.weights.scale_dtype == "e8m0" else FP8
        parts = {
            PACKED: Part(torch.empty(count, n, k // 2, dtype=torch.uint8), "group"),
            SCALE: Part(torch.empty(count, n, groups, dtype=scale_dtype), "group"),
        }
        if scheme.weights.strategy == "tensor_group":
            for name in (WHOLE, WHOLE_INPUT):
                shape = (count, 2) if stem == "w13" else (count,)
                parts[name] = Part(torch.ones(shape, dtype=torch.float32), "tensor")
        return parts

    def packed(self, found: dict[str, Tensor], n: int, dtype: torch.dtype, stem: str) -> Packed:
        if self.scheme.weights.type == "int":
            return Packed(self.scheme, _integers(self.scheme, found, n, dtype))
        whole = found.get(WHOLE)
        return Packed(
            self.scheme, float4(self.scheme, found[PACKED], found[SCALE], whole, n, dtype)
        )


def _integers(
    scheme: Scheme, found: dict[str, Tensor], n: int, dtype: torch.dtype
) -> dict[str, Tensor]:
    bits = scheme.weights.num_bits
    repacked = ({"b_packed": gptq_repack(x.t().contiguous(), bits=bits)} for x in found[PACKED])
    made = stacked(len(found[PACKED]), repacked)
    made["scales"] = found[SCALE].transpose(1, 2).to(dtype).contiguous()
    if scheme.has_zeros:
        words = found[ZEROS].transpose(1, 2)  # [E, G, words of N]
        codes = unpack_rows(words.flatten(0, 1), bits, n).view(*words.shape[:2], n)
        made["zeros"] = (codes - (1 << (bits - 1))).to(dtype)
    return made


def float4(
    scheme: Scheme, pairs: Tensor, scales: Tensor, whole: Tensor | None, n: int, dtype: torch.dtype
) -> dict[str, Tensor]:
    """The parts of a ``StackedWeight`` of MXFP4 or NVFP4.

    Args:
        pairs: uint8 ``[E, N, K / 2]``, two codes each. scales: ``[E, N, G]``, as stored.
        whole: float32 ``[E]`` or ``[E, 2]``, what the weights of one or two matrices are divided by
            besides, or None.
        n: channels of one expert. dtype: of activations.

    Raises:
        ValueError: a scale is none that the scheme has.
    """
    is_power, count = scheme.weights.scale_dtype == "e8m0", len(pairs)
    if whole is not None:  # [E, 1 or 2 matrices], each with as many channels
        whole = whole.view(count, -1)
        whole = whole.repeat_interleave(n // whole.shape[1], dim=1)

    def expert(number: int) -> dict[str, Tensor | None]:
        stored = scales[number]
        numbers = powers_of_two(stored) if is_power else stored.float()
        divisor = None if whole is None else whole[number]
        weight = float4_weight(pairs[number], numbers, divisor, scheme, dtype)
        return {"b_packed": weight.b_packed, "scales": weight.scales, "factor": weight.factor}

    return stacked(count, map(expert, range(count)))
