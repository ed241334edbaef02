"""GPTQ: AutoGPTQ, GPTQModel, optimum, AutoRound's "auto_gptq".

    qweight int32 [K * b / 32, N]   qzeros int32 [G, N * b / 32]   scales [G, N]
    g_idx int32 [K] or absent       bias [N]

Dense bit streams, along K in qweight and along N in qzeros; 2, 3, 4 and 8 bits.
w[n, k] = (code - zero) * scale with the group g_idx[k]. Source: the quantized linear
layers of AutoGPTQ and GPTQModel.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

import torch
from torch import Tensor

from ..ops.problem import DTYPES, ceil_div
from ..ops.repack import gptq_repack
from ..weights.exchange import QuantizedWeight
from .bitfields import unpack_dense, words_dense
from .decode import act_order, from_codes
from .gptq_zeros import ZeroPoints
from .layer import Config, LayerInfo, LayerTensors, stored_integers
from .layer_rules import LayerRules
from .load import Axes, Decoded, Loaded, Wanted, repacked

BITS = (2, 3, 4, 8)
# Where gptq_repack takes no longer on a CPU than unpacking and packing does: its loop gathers codes
# from rows. A 4096 x 4096 layer takes 0.95 of the time with 4 bits and 0.6 with 3, but 1.5 with 2
# and 3.3 with 8. On a GPU words travel to it instead of bytes, whatever their bits.
REPACKED_ON_CPU = (3, 4)


class Gptq(Decoded):
    anchor = "qweight"
    roles: tuple[str, ...] = ("qweight", "qzeros", "scales", "g_idx", "bias")
    axes: Axes | None = MappingProxyType(
        {
            "qweight": (1, 0),
            "qzeros": (1, 0),
            "scales": (1, 0),
            "g_idx": (None, 0),
            "bias": (0, None),
        }
    )
    notes: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()

    def __init__(self, config: Config, where: Path) -> None:
        self._rules = LayerRules(config, where)
        bits = self._rules.bits
        if bits in (5, 6, 7):
            raise ValueError(
                f"bits={bits} in split planes (gptq_p) is not read: 2, 3, 4 and 8 are. Hint: "
                "let GPTQModel convert it to compressed-tensors"
            )
        self._zero_points = ZeroPoints(config, where)
        self.title = f"GPTQ {self._zero_points.flag}"

    def describe(self, layer: LayerTensors) -> LayerInfo:
        rows, n = layer.matrix("qweight", torch.int32)
        groups, _ = layer.matrix("scales", *DTYPES)
        layer.expect("scales", (groups, n), *DTYPES)
        _, width = layer.matrix("qzeros", torch.int32)
        k = layer.shape("g_idx")[0] if layer.has("g_idx") and layer.shape("g_idx") else None
        bits = self._layer_bits(layer, n, width, rows, k)
        layer.expect("qzeros", (groups, words_dense(n, bits)), torch.int32)
        k = rows * 32 // bits if k is None else k
        if layer.has("g_idx"):
            layer.expect("g_idx", (k,), torch.int32, torch.int64)
        size = self._group_size(layer, k, groups)
        nbytes = layer.nbytes(self.roles)
        scheme = stored_integers(bits, size, "sub")
        return LayerInfo.stored_as(scheme, layer.name, (n, k), nbytes, stored_bits=bits)

    def _group_size(self, layer: LayerTensors, k: int, groups: int) -> int:
        """As stated, where that gives as many groups; else as g_idx counts them; else as the shapes
        leave it."""
        stated, open_to = self._rules.group_sizes_of(layer.name), self._rules.has_rules
        fits = any(size > 0 and ceil_div(k, size) == groups for size in stated)
        if layer.has("g_idx") and groups > 1 and not fits and (open_to or not stated):
            stated = (int(layer.load("g_idx").clamp(0, groups).bincount().max()),)
        return layer.group_size("scales", k, groups, stated, derive=open_to)

    def _layer_bits(self, layer: LayerTensors, n: int, width: int, rows: int, k: int | None) -> int:
        fits = [
            b
            for b in BITS
            if words_dense(n, b) == width
            and (rows == words_dense(k, b) if k else rows * 32 % b == 0)
        ]
        stated = self._rules.bits_of(layer.name)
        for bits in stated:
            if bits in fits:
                return bits
        if (not stated or self._rules.has_rules) and len(fits) == 1:
            return fits[0]
        wanted = " or ".join(f"bits={x}" for x in stated) or "any of 2, 3, 4 and 8 bits"
        raise layer.error(
            "qweight",
            f"has {rows} rows for K={k}, and qzeros {width} columns for N={n}, which {wanted} does "
            "not give",
        )

    def decode(self, layer: LayerTensors, info: LayerInfo) -> QuantizedWeight:
        words = layer.load("qweight").t().contiguous()
        codes = unpack_dense(words, info.bits, info.in_features)
        g_idx = self._group_of_columns(layer, info)
        zeros = self._zero_points.read(layer, info, lambda step: codes[::step], g_idx)
        return from_codes(layer, info, codes, layer.load_floats("scales"), zeros, g_idx)

    def load(self, layer: LayerTensors, info: LayerInfo, wanted: Wanted) -> Loaded:
        words, bits = layer.load("qweight"), info.stored_bits
        if not words.is_cuda and bits not in REPACKED_ON_CPU:
            return super().load(layer, info, wanted)

        def codes(step: int) -> Tensor:
            return unpack_dense(words[:, ::step].t().contiguous(), bits, info.in_features)

        g_idx = self._group_of_columns(layer, info)
        zeros = self._zero_points.read(layer, info, codes, g_idx)
        order = act_order(layer, info, g_idx)
        perm = None if order is None else order.to(torch.int32)
        found = repacked(
            layer, info, wanted, lambda: gptq_repack(words, perm, bits=bits), zeros, order
        )
        return super().load(layer, info, wanted) if found is None else found

    def _group_of_columns(self, layer: LayerTensors, info: LayerInfo) -> Tensor:
        """``[K]``; what is outside 0..G-1 would index memory of others."""
        size = info.in_features if info.group_size == -1 else info.group_size
        if not layer.has("g_idx"):
            device = layer.load("qweight").device
            return torch.arange(info.in_features, device=device) // size
        g_idx, groups = layer.load("g_idx").to(torch.int64), ceil_div(info.in_features, size)
        low, high = (int(x) for x in g_idx.aminmax())
        if low < 0 or high >= groups:
            raise layer.error("g_idx", f"must be in 0..{groups - 1}, got {low}..{high}")
        return g_idx
