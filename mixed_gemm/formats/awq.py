"""AutoAWQ "gemm": what AutoAWQ writes by default.

    qweight int32 [K, N / 8]   qzeros int32 [G, N / 8] or absent   scales [G, N]   bias [N]

Eight columns of N to a word, nibble i holding column 8 j + (0 2 4 6 1 3 5 7)[i].
w[n, k] = (code - zero) * scale, 4 bits only. Source: gemm.py and packing_utils.py of AutoAWQ.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

import torch
from torch import Tensor

from ..ops.problem import DTYPES
from ..ops.repack import awq_repack
from ..weights.exchange import QuantizedWeight
from .bitfields import unpack_dense
from .decode import from_codes
from .layer import Config, LayerInfo, LayerTensors, stored_integers
from .layer_rules import LayerRules
from .load import Axes, Decoded, Loaded, Wanted, repacked

_NIBBLE_OF_COLUMN = (0, 4, 1, 5, 2, 6, 3, 7)


def unpack_columns(words: Tensor) -> Tensor:
    """int32 ``[R, N / 8]`` -> uint8 ``[R, N]``."""
    rows, width = words.shape
    nibbles = unpack_dense(words, 4, width * 8).view(rows, width, 8)
    return nibbles[..., list(_NIBBLE_OF_COLUMN)].reshape(rows, width * 8)


def four_bits(config: Config, where: Path) -> LayerRules:
    """Read what the configuration of an AWQ file says of its layers.

    Raises:
        ValueError: bits are not 4, which no such file has.
    """
    rules = LayerRules(config, where)
    if rules.bits not in (None, 4):
        raise ValueError(f"bits must be 4, got {rules.bits}")
    return rules


class AwqGemm(Decoded):
    title = "AWQ gemm"
    anchor = "qweight"
    roles: tuple[str, ...] = ("qweight", "qzeros", "scales", "bias")
    axes: Axes | None = MappingProxyType(
        {"qweight": (1, 0), "qzeros": (1, 0), "scales": (1, 0), "bias": (0, None)}
    )
    notes: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()

    def __init__(self, config: Config, where: Path) -> None:
        self._rules = four_bits(config, where)
        self._zero_point = config.get("zero_point")

    def describe(self, layer: LayerTensors) -> LayerInfo:
        k, width = layer.matrix("qweight", torch.int32)
        n = width * 8
        groups, _ = layer.matrix("scales", *DTYPES)
        layer.expect("scales", (groups, n), *DTYPES)
        if layer.has("qzeros"):
            layer.expect("qzeros", (groups, width), torch.int32)
        elif self._zero_point is True:
            raise layer.error("qzeros", "is missing, and the configuration says zero_point: true")
        stated = self._rules.group_sizes_of(layer.name)
        size = layer.group_size("scales", k, groups, stated, derive=self._rules.has_rules)
        nbytes = layer.nbytes(self.roles)
        scheme = stored_integers(4, size, "sub" if layer.has("qzeros") else "none")
        return LayerInfo.stored_as(scheme, layer.name, (n, k), nbytes, stored_bits=4)

    def decode(self, layer: LayerTensors, info: LayerInfo) -> QuantizedWeight:
        codes = unpack_columns(layer.load("qweight")).t()
        # Files with zero_point: false may leave qzeros out; the zero is then the middle code.
        zeros = unpack_columns(layer.load("qzeros")) if info.has_zeros else None
        return from_codes(layer, info, codes, layer.load_floats("scales"), zeros)

    def load(self, layer: LayerTensors, info: LayerInfo, wanted: Wanted) -> Loaded:
        zeros = unpack_columns(layer.load("qzeros")) if info.has_zeros else None
        found = repacked(layer, info, wanted, lambda: awq_repack(layer.load("qweight")), zeros)
        return super().load(layer, info, wanted) if found is None else found
