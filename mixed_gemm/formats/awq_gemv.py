"""AutoAWQ "gemv" and "gemv_fast", and llm-awq: the layouts of their GEMV kernels.

    gemv:       qweight int32 [N, K / 8]   qzeros int32 [N, Z]       scales [N, 8 Z]
    gemv_fast:  qweight int16 [N / 4, K]   qzeros float [8 Z, N]     scales [8 Z, N]
    llm-awq:    as gemv_fast, the zeros being named scaled_zeros

Scales and zeros are padded to 8 Z >= G groups. The float zeros hold -(zero * scale). 4 bits only.
Source: gemv.py and gemv_fast.py of AutoAWQ, qmodule.py of llm-awq.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from ..ops.problem import DTYPES, ceil_div
from ..weights.exchange import QuantizedWeight
from .awq import four_bits
from .bitfields import to_signed, unpack_dense
from .decode import from_codes
from .layer import Config, LayerInfo, LayerTensors, stored_integers
from .layer_rules import LayerRules
from .load import Decoded

# Elements of K that share a scale in llm-awq files without a configuration. Padding hides how many
# groups there are.
_UNSTATED = 128


def _groups(layer: LayerTensors, k: int, rules: LayerRules, padded: int) -> tuple[int, int]:
    """(group size or -1, number of groups)."""
    size = (*rules.group_sizes_of(layer.name), _UNSTATED)[0]
    groups = 1 if size == -1 else ceil_div(k, size)
    if groups > padded:
        raise layer.error(
            "scales", f"has {padded} groups, fewer than K={k}, group_size={size} give"
        )
    return (-1 if groups == 1 else size), groups


def _used(layer: LayerTensors, scales: Tensor, groups: int) -> Tensor:
    """The first ``groups`` of ``[padded, N]``: those behind are zero, and none of these is."""
    used = (scales != 0).any(1)
    count = int(used.sum())
    if count != groups or not bool(used[:groups].all()):
        raise layer.error(
            "scales", f"has {count} groups that are not zero, where group_size gives {groups}"
        )
    return scales[:groups]


class AwqGemv(Decoded):
    title = "AWQ gemv"
    anchor = "qweight"
    roles: tuple[str, ...] = ("qweight", "qzeros", "scales", "bias")
    notes: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()

    def __init__(self, config: Config, where: Path) -> None:
        self._rules = four_bits(config, where)

    def describe(self, layer: LayerTensors) -> LayerInfo:
        n, words = layer.matrix("qweight", torch.int32)
        _, width = layer.matrix("qzeros", torch.int32)
        layer.expect("qzeros", (n, width), torch.int32)
        layer.expect("scales", (n, 8 * width), *DTYPES)
        size, _ = _groups(layer, words * 8, self._rules, 8 * width)
        nbytes = layer.nbytes(self.roles)
        scheme = stored_integers(4, size, "sub")
        return LayerInfo.stored_as(scheme, layer.name, (n, words * 8), nbytes, stored_bits=4)

    def decode(self, layer: LayerTensors, info: LayerInfo) -> QuantizedWeight:
        groups = ceil_div(info.in_features, info.group_size) if info.group_size != -1 else 1
        codes = unpack_dense(layer.load("qweight"), 4, info.in_features)
        zeros = unpack_dense(layer.load("qzeros"), 4, groups)
        scales = _used(layer, layer.load_floats("scales").t(), groups).t()
        return from_codes(layer, info, codes, scales.t(), zeros.t())


def unpack_fast(words: Tensor) -> Tensor:
    """int16 ``[N / 4, K]`` -> uint8 ``[N, K]``: four rows in the nibbles of a word, 64 columns at a
    time; within 32 columns, two orders of the kernel's own are undone."""
    rows, k = words.shape
    x = unpack_dense(words, 4, 4 * k)  # 16 words of 4 nibbles make 64 columns of one row
    x = x.view(rows, k // 64, 4, 64).transpose(1, 2).reshape(4 * rows, k // 32, 4, 2, 4)
    x = x.transpose(3, 4).reshape(4 * rows, k // 32, 4, 4, 2)
    return x.transpose(2, 3).reshape(4 * rows, k)


class AwqGemvFast(Decoded):
    anchor = "qweight"
    notes: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()

    def __init__(self, config: Config, where: Path, zeros: str) -> None:
        self.title = "AWQ gemv_fast" if zeros == "qzeros" else "llm-awq"
        self.roles: tuple[str, ...] = ("qweight", zeros, "scales", "bias")
        self._zeros = zeros
        self._rules = four_bits(config, where)

    def describe(self, layer: LayerTensors) -> LayerInfo:
        rows, k = layer.matrix("qweight", torch.int16)
        if k % 64 != 0:
            raise layer.error("qweight", f"must have a multiple of 64 columns, got {k}")
        padded, _ = layer.matrix("scales", *DTYPES)
        layer.expect("scales", (padded, 4 * rows), *DTYPES)
        layer.expect(self._zeros, (padded, 4 * rows), *DTYPES)
        size, _ = _groups(layer, k, self._rules, padded)
        nbytes = layer.nbytes(self.roles)
        scheme = stored_integers(4, size, "sub")
        return LayerInfo.stored_as(scheme, layer.name, (4 * rows, k), nbytes, stored_bits=4)

    def decode(self, layer: LayerTensors, info: LayerInfo) -> QuantizedWeight:
        groups = ceil_div(info.in_features, info.group_size) if info.group_size != -1 else 1
        codes = unpack_fast(layer.load("qweight"))
        scales = _used(layer, layer.load_floats("scales"), groups)
        products = layer.load_floats(self._zeros)[:groups]
        zeros = torch.round(-products.float() / scales.float())
        # The integers before the product was rounded: exact, and what quantization chose.
        error = (products.float() + zeros * scales.float()).abs()
        tolerance = torch.finfo(scales.dtype).eps * products.float().abs()
        if bool((error <= tolerance).all()) and bool(((zeros >= 0) & (zeros <= 15)).all()):
            return from_codes(layer, info, codes, scales, zeros)
        return QuantizedWeight.of_codes(
            layer.name,
            to_signed(codes, 4),
            scales.contiguous(),
            (products.float() + 8 * scales.float()).to(scales.dtype),
            scheme=replace(info.scheme, zero_mode="add"),
            bias=layer.bias(info.out_features),
        )
