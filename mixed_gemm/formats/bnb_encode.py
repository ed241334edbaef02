"""A QuantizedWeight in the tensors and the configuration of bitsandbytes, as transformers saves its
4-bit layers: plain absmax, one float32 for each block, which is what the scale of a group is.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .._library import package_version
from ..ops.problem import WEIGHTS
from ..weights.exchange import QuantizedWeight
from .layer import in_layer
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
    keys, forms = set(dense), defaultdict[tuple[int, tuple[int, ...]], set[str]](set)
    for key in keys:  # few forms, each of which one look tells
        dots = tuple(at for at, character in enumerate(key) if character == ".")
        forms[len(key), dots].add(key)
    lengths = {length for length, _ in forms}

    def is_taken(name: str) -> bool:
        if any(name[max(len(name) - length, 0) :] in keys for length in lengths):
            return True
        fits = ((x, dots) for x, dots in forms if name[x : x + 1] in (".", "") and x <= len(name))
        return any(_dotted(name[:x], dots) in forms[x, dots] for x, dots in fits)

    return not any(map(is_taken, layers))


def _dotted(name: str, dots: Sequence[int]) -> str:
    """Put a dot at each of these places."""
    characters = list(name)
    for at in dots:
        characters[at] = "."
    return "".join(characters)


def _bytes(text: str) -> Tensor:
    return torch.tensor(list(text.encode()), dtype=torch.uint8)


class Books:
    """The tensors and the quantization_config of a model, gathered layer by layer: what ``Groups``
    is for compressed-tensors.

    Args:
        dtypes: layer -> the dtype that its weight is dequantized to.
    """

    joins_experts = False

    def __init__(self, dtypes: Mapping[str, torch.dtype]) -> None:
        self._dtypes = dtypes
        self._book = ""
        self.own: dict[str, str] = {}  # every reader of the format reads it

    def encode(self, weight: QuantizedWeight) -> Iterator[tuple[str, Tensor]]:
        """Give (name, tensor), as bitsandbytes.py reads them. Scales in another dtype than float32
        are written as the same numbers.

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
        made |= {} if weight.bias is None else {"bias": weight.bias}
        return in_layer(weight.name, made)

    def add(self, weight: QuantizedWeight, name: str, file_name: str = "") -> None:
        """Add a layer.

        Args:
            weight: of the layer, or of one that differs in its codes and scales alone.
            name, file_name: of the module and of its tensors, which readers do not ask for.
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
