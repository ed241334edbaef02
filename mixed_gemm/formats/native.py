"""The layout that ``save_pretrained`` of this library wrote before it wrote compressed-tensors, and
that a state_dict of its layers has: weights packed as the kernels read them, with a tag that says
how.

    b_packed uint8   scales, zeros [G, N]   pre_scale, permutation [K]   bias [N]
    _extra_state uint8: JSON with layout_version, in_features, out_features, bits, group_size, ...
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ..ops.layout import unpack
from ..ops.problem import LAYOUT_VERSION, num_groups, packed_shape
from ..weights.exchange import QuantizedWeight
from ..weights.scheme import Scheme
from ..weights.values import decode_tag, tagged_weight
from .layer import Config, LayerInfo, LayerTensors
from .load import Decoded

_NUMBERS = ("layout_version", "in_features", "out_features", "bits", "group_size")
_FLOATS = ("scales", "zeros", "pre_scale", "bias")
_LARGEST = 2**31


class Native(Decoded):
    title = "mixed_gemm"
    anchor = "b_packed"
    roles: tuple[str, ...] = ("b_packed", "permutation", "_extra_state", *_FLOATS)
    notes: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()

    def __init__(self, config: Config, where: Path) -> None:
        pass

    def _tag(self, layer: LayerTensors) -> tuple[int, int, Scheme, bool]:
        """(N, K, scheme, whether columns are permuted)."""
        try:
            tag: Any = decode_tag(layer.load("_extra_state"))
            version, *numbers = (tag[name] for name in _NUMBERS)
            if not all(type(x) is int and x < _LARGEST for x in numbers):
                raise ValueError("its numbers are no integers, or too large")
            k, n, bits, group_size = numbers
            if k < 1 or n < 1:
                raise ValueError(f"{n} output and {k} input features")
            scheme = Scheme.weight_only(bits, group_size, tag["zero_mode"])
            if tagged_weight(tag) != scheme.weight_type:
                raise ValueError(f"weights of the type {tagged_weight(tag)!r} are not read")
            permuted = tag.get("permuted", False) is True
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise layer.error("_extra_state", f"is not a layout tag ({error!r})") from error
        if version != LAYOUT_VERSION:
            raise layer.error(
                "_extra_state", f"is layout version {version}, this library reads {LAYOUT_VERSION}"
            )
        return n, k, scheme, permuted

    def describe(self, layer: LayerTensors) -> LayerInfo:
        n, k, scheme, permuted = self._tag(layer)
        groups = num_groups(k, scheme.group_size)
        layer.expect("b_packed", packed_shape(n, k, scheme.weight_type), torch.uint8)
        layer.expect("scales", (groups, n), *layer.float_dtypes)
        for role, needed in (("zeros", scheme.has_zeros), ("permutation", permuted)):
            if needed != layer.has(role):
                raise layer.error(role, "is missing" if needed else "is not in the tag")
        if scheme.has_zeros:
            layer.expect("zeros", (groups, n), *layer.float_dtypes)
        if permuted:
            layer.expect("permutation", (k,), torch.int64)
        if layer.has("pre_scale"):
            layer.expect("pre_scale", (k,), *layer.float_dtypes)
        layer.bias(n)
        size = -1 if groups == 1 else scheme.group_size
        nbytes = layer.nbytes(self.roles)
        stored = Scheme.of_file(scheme.weight_type, size, scheme.zero_mode)
        return LayerInfo.stored_as(stored, layer.name, (n, k), nbytes, scheme.bits)

    def decode(self, layer: LayerTensors, info: LayerInfo) -> QuantizedWeight:
        _, _, scheme, permuted = self._tag(layer)
        packed = layer.load("b_packed")
        floats: dict[str, Any] = {
            role: layer.load_floats(role) for role in _FLOATS if layer.has(role)
        }
        return QuantizedWeight.of_codes(
            layer.name,
            unpack(packed, scheme.weight_type, info.out_features, info.in_features),
            scheme=info.scheme,
            permutation=layer.load("permutation") if permuted else None,
            **floats,
        )
