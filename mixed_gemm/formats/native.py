"""What ``save_pretrained`` of a model with ``mixed_gemm.Linear`` layers writes: packed as the
kernels read it, with a tag for each layer that says how.

    b_packed uint8   scales, zeros [G, N]   pre_scale, permutation [K]   bias [N]
    _extra_state uint8: JSON with layout_version, in_features, out_features, bits, group_size, ...
"""

from __future__ import annotations

from pathlib import Path

import torch

from .. import ops
from ..ops.problem import LAYOUT_VERSION
from ..weights.exchange import QuantizedWeight
from ..weights.scheme import QuantScheme
from ..weights.state import QuantizedLayer, decode_tag
from .layer import Config, LayerInfo, LayerTensors

_NUMBERS = ("layout_version", "in_features", "out_features", "bits", "group_size")
_FLOATS = ("scales", "zeros", "pre_scale", "bias")


class Native:
    title = "mixed_gemm"
    anchor = "b_packed"
    roles: tuple[str, ...] = ("b_packed", "permutation", "_extra_state", *_FLOATS)
    notes: tuple[str, ...] = ()

    def __init__(self, config: Config, where: Path) -> None:
        pass

    def layer_of(self, layer: LayerTensors) -> QuantizedLayer:
        """The shapes and the scheme in the tag; every tensor is checked against them."""
        try:
            tag = decode_tag(layer.load("_extra_state"))
            version, *numbers = (tag[name] for name in _NUMBERS)
            if not all(type(x) is int and x < 2**31 for x in numbers):
                raise ValueError("its numbers are no integers, or too large")
            k, n, bits, group_size = numbers
            if k < 1 or n < 1:
                raise ValueError(f"{n} output and {k} input features")
            scheme = QuantScheme(bits, group_size, tag["zero_mode"])
            found = QuantizedLayer(k, n, scheme, tag.get("permuted", False) is True)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise layer.error("_extra_state", f"is not a layout tag ({error!r})") from error
        if version != LAYOUT_VERSION:
            raise layer.error(
                "_extra_state", f"is layout version {version}, this library reads {LAYOUT_VERSION}"
            )
        integers = {"b_packed": torch.uint8, "permutation": torch.int64}
        for role, shape in found.shapes().items():
            if layer.has(role):
                dtypes = (integers[role],) if role in integers else layer.float_dtypes
                layer.expect(role, shape, *dtypes)
        for role, needed in (("zeros", scheme.has_zeros), ("permutation", found.permuted)):
            if needed != layer.has(role):
                raise layer.error(role, "is missing" if needed else "is not in the tag")
        return found

    def describe(self, layer: LayerTensors) -> LayerInfo:
        found = self.layer_of(layer)
        return LayerInfo(
            layer.name,
            found.in_features,
            found.out_features,
            found.scheme.bits,
            found.scheme.group_size,
            "int",
            found.scheme.has_zeros,
            layer.nbytes(self.roles),
        )

    def decode(self, layer: LayerTensors, info: LayerInfo) -> QuantizedWeight:
        scheme = self.layer_of(layer).scheme
        floats = {role: layer.load_floats(role) for role in _FLOATS if layer.has(role)}
        packed = layer.load("b_packed")
        return QuantizedWeight(
            name=layer.name,
            q=ops.unpack_weights(packed, info.bits, info.out_features, info.in_features),
            bits=info.bits,
            group_size=info.group_size,
            zero_mode=scheme.zero_mode,
            permutation=layer.load("permutation") if layer.has("permutation") else None,
            **floats,
        )
