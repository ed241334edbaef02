"""A QuantizedWeight in the tensors and the configuration of bitsandbytes, as transformers saves its
4-bit layers: plain absmax, one float32 for each block, which is what the scale of a group is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from .._library import package_version
from ..ops.problem import WEIGHTS
from ..weights.exchange import QuantizedWeight
from .outline import Outline

STATE = "weight.quant_state.bitsandbytes__"
BOOKS = tuple(name for name, row in WEIGHTS.items() if row.is_book)
# The blocks that bitsandbytes makes. A scale of a row is that of a block where K is one of them.
_BLOCKS = (32, 64, 128, 256, 512, 1024, 2048, 4096)


def _block(outline: Outline) -> int:
    size, k = outline.scheme.group_size, outline.shape[1]
    return k if size == -1 else size


def why_not_bitsandbytes(outline: Outline) -> str:
    """Why a file of bitsandbytes has no place for a layer; empty where it has one."""
    k, block, side = outline.shape[1], _block(outline), outline.scheme.weights
    reasons = {
        f"weights of the type {outline.scheme.weight_type}": side.type not in BOOKS,
        f"the place of {outline.module}": outline.module != "linear",
        "a pre_scale or a permutation of the columns": outline.has_more,
        f"blocks of {block}": block not in _BLOCKS,
        f"a K of {k}, which is no multiple of {block}": k % block != 0,
    }
    return ", ".join(reason for reason, holds in reasons.items() if holds)


def are_told_apart(layers: Iterable[str], dense: Iterable[str]) -> bool:
    """Whether the names of dense linears, as transformers matches them, leave all layers quantized:
    a name also stands for what is inside of it, and for what ends in it; its dots for any
    character.

    Args:
        layers: names of those that are quantized. dense: of the others.
    """
    patterns = {key: re.escape(key).replace(r"\.", ".") for key in dense}
    return not any(
        name.endswith(key) or re.match(rf"{pattern}(?:\.|$)", name)
        for name in layers
        for key, pattern in patterns.items()
    )


def _bytes(text: str) -> Tensor:
    return torch.tensor(list(text.encode()), dtype=torch.uint8)


class Books:
    """The tensors and the quantization_config of a model, gathered layer by layer: what ``Groups``
    is for compressed-tensors.

    Args:
        dtypes: layer -> the dtype that its weight is dequantized to.
    """

    def __init__(self, dtypes: Mapping[str, torch.dtype]) -> None:
        self._dtypes = dtypes
        self._book = ""
        self.own: dict[str, str] = {}  # every reader of the format reads it

    def encode(self, weight: QuantizedWeight) -> dict[str, Tensor]:
        """Role -> tensor, as bitsandbytes.py reads them. Scales in another dtype than float32 are
        written as the same numbers.

        Args:
            weight: that :func:`why_not_bitsandbytes` has nothing against.
        """
        n, k = weight.shape
        block = k if weight.group_size == -1 else weight.group_size
        dtype = self._dtypes[weight.name]
        state = {
            "quant_type": weight.weight,
            "blocksize": block,
            "dtype": str(dtype).removeprefix("torch."),
            "shape": [n, k],
        }
        codes = weight.q.view(torch.uint8).flatten()
        made = {
            "weight": (codes[::2] << 4 | codes[1::2]).unsqueeze(1),
            "weight.absmax": weight.scales.t().contiguous().float().flatten(),
            # The map of FP4 has a 0 for -0, too.
            "weight.quant_map": torch.tensor(WEIGHTS[weight.weight].values) + 0.0,
            STATE + weight.weight: _bytes(json.dumps(state)),
        }
        return made if weight.bias is None else {**made, "bias": weight.bias}

    def add(self, weight: QuantizedWeight, file_name: str = "") -> None:
        """Add a layer.

        Args:
            weight: its name is that of the module. file_name: that of its tensors, which readers do
                not ask for.
        """
        self._book = weight.weight

    def configuration(
        self,
        ignore: Iterable[str],
        own: bool = False,
        carried: Mapping[str, Any] | None = None,
        recipe: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Make the quantization_config of config.json.

        Args:
            ignore: linears that are dense. own, carried: nothing, as of ``written_as``.
            recipe: how the layers were quantized, as JSON has it.
        """
        dtype = next(iter(self._dtypes.values()))
        return {
            "quant_method": "bitsandbytes",
            "load_in_4bit": True,
            "load_in_8bit": False,
            "_load_in_4bit": True,
            "_load_in_8bit": False,
            "bnb_4bit_compute_dtype": str(dtype).removeprefix("torch."),
            "bnb_4bit_quant_storage": "uint8",
            "bnb_4bit_quant_type": self._book,
            "bnb_4bit_use_double_quant": False,
            "llm_int8_enable_fp32_cpu_offload": False,
            "llm_int8_has_fp16_weight": False,
            "llm_int8_skip_modules": sorted(ignore),
            "llm_int8_threshold": 6.0,
            # Other readers ignore this key; this library knows its own files by it.
            "mixed_gemm": {
                "version": package_version(),
                **({"recipe": dict(recipe)} if recipe else {}),
            },
        }
