"""The tensors of gpt-oss's experts as OpenAI's files have them: MXFP4 with biases, rows of gate and
up in turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import torch
from torch import Tensor

from ...formats.gpt_oss_files import BLOCK, ROWS
from ...weights.scheme import Scheme
from .experts_layout import FACTOR, Packed, Part
from .experts_stored import MXFP4, float4

_WEIGHT, _SCALE, _BIAS = "weight", "weight_scale", "bias"
_TURNS = tuple(ROWS["gate_up_proj"].values())


class GptOssLayout:
    """The experts of a layer of gpt-oss; a ``Layout``."""

    scheme: Scheme = MXFP4
    in_turns: ClassVar[bool] = True
    has_biases: ClassVar[bool] = True
    has_order: ClassVar[bool] = False
    packs_channels: ClassVar[bool] = False
    ends_on_cpu: ClassVar[bool] = False
    names: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"b_packed": _WEIGHT, "scales": _SCALE, "factor": FACTOR, "bias": _BIAS}
    )

    def parts(self, count: int, n: int, k: int, dtype: torch.dtype, stem: str) -> dict[str, Part]:
        return {
            _WEIGHT: Part(torch.empty(count, n, k // 2, dtype=torch.uint8), "block"),
            _SCALE: Part(torch.empty(count, n, k // BLOCK, dtype=torch.uint8), "block"),
            _BIAS: Part(torch.zeros(count, n, dtype=dtype)),
        }

    def packed(self, found: dict[str, Tensor], n: int, dtype: torch.dtype, stem: str) -> Packed:
        if stem == "w13":
            _put_gate_first(found)
        pairs, scales, bias = found[_WEIGHT], found[_SCALE], found[_BIAS].to(dtype)
        made = float4(self.scheme, pairs, scales, None, n, dtype)
        return Packed(self.scheme, {**made, "bias": bias})


def _put_gate_first(found: dict[str, Tensor]) -> None:
    """Move the rows of gate before those of up, in place, one expert after the other.

    Args:
        found: tensors ``[E, 2 * I, ...]`` in whose rows gate and up alternate.
    """
    for tensor in found.values():
        for expert in tensor:
            expert.copy_(torch.cat([expert[rows] for rows in _TURNS]))
