"""NVIDIA ModelOpt (TensorRT Model Optimizer), as its export to Hugging Face writes it.

    NVFP4:  weight uint8 [N, K / 2]       weight_scale float8_e4m3fn [N, K / 16]
            weight_scale_2 float32 []     input_scale float32 []    pre_quant_scale [K], of AWQ
    MXFP4:  weight uint8 [N, K / 2]       weight_scale uint8 [N, K / 32]
    FP8:    weight float8_e4m3fn [N, K]   weight_scale float32 []   input_scale float32 []
            per channel weight_scale [N], by block [N / 128, 1, K / 128, 1]
    MXFP8:  weight float8_e4m3fn [N, K]   weight_scale uint8 [N, K / 32]

w = value * weight_scale * weight_scale_2, where compressed-tensors divides by its global scale;
activations are multiplied by pre_quant_scale. Else the layers are those of compressed-tensors under
other names, so its reader reads them: 1 / weight_scale_2 is rounded to float32, as the converter of
that package does, which changes weights by 2^-24 of them at most.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ..weights.exchange import QuantizedWeight
from ..weights.rounding_fp8 import FP8
from ..weights.scheme import Side
from .compressed_tensors import CompressedTensors
from .ct_float4 import GLOBAL, is_float4
from .e8m0 import E8M0
from .layer import Config, LayerInfo, LayerTensors
from .modelopt_config import MIXED, algo_of, as_compressed, listed_layers

_SCALE = "weight_scale"
_WHOLE = "weight_scale_2"
_SMOOTHING = "pre_quant_scale"
# role of compressed-tensors -> role here
_ROLES = {"weight_packed": "weight", GLOBAL: _WHOLE, "mixed_gemm_pre_scale": _SMOOTHING}


class ModelOpt(CompressedTensors):
    def __init__(self, config: Config, where: Path) -> None:
        super().__init__(as_compressed(config, where), where)
        algo = algo_of(config)
        self.title = f"ModelOpt {algo}"
        self._listed = listed_layers(config) if algo == MIXED else None
        self.roles = ("weight", _SCALE, _WHOLE, "input_scale", _SMOOTHING, "bias")
        self.axes = None  # blocks have a shape of their own

    def describe(self, layer: LayerTensors) -> LayerInfo:
        if self._listed is not None and layer.name not in self._listed:
            reason = "is quantized, and quantized_layers of the configuration does not name it"
            raise layer.error(_SCALE, reason)
        has_codes = is_float4(self._rules.of(layer.name).weights)
        layer.matrix("weight", torch.uint8 if has_codes else FP8)
        if layer.has(_SMOOTHING) and not has_codes:
            raise layer.error(_SMOOTHING, "is of 4-bit floats, got it beside a float8 weight")
        return super().describe(self._shown(layer))

    def decode(self, layer: LayerTensors, info: LayerInfo) -> QuantizedWeight:
        return super().decode(self._shown(layer), info)

    def _shown(self, layer: LayerTensors) -> _AsCompressed:
        return _AsCompressed(layer, self._rules.of(layer.name).weights)

    def _rounded(
        self, layer: LayerTensors, side: Side, kind: str, size: int, k: int
    ) -> tuple[int, Side | None]:
        """None too where the file has no scale for static activations: then they were not rounded
        when it was written."""
        if not side.dynamic and not layer.has("input_scale"):
            return size, None
        return super()._rounded(layer, side, kind, size, k)

    def _scale_dtypes(self, layer: LayerTensors) -> tuple[torch.dtype, ...]:
        return super()._scale_dtypes(layer) if layer.dtype(_SCALE) == E8M0 else (torch.float32,)


class _AsCompressed(LayerTensors):
    """A layer with the roles, shapes and dtypes of compressed-tensors. Errors have its own names.

    Args:
        layer: of ModelOpt. rule: of its weight.
    """

    def __init__(self, layer: LayerTensors, rule: Side) -> None:
        super().__init__(layer.index, layer.name, layer.group)
        self._by_block, self._has_codes = rule.block is not None, is_float4(rule)

    def tensor_name(self, role: str) -> str:
        return super().tensor_name(_ROLES.get(role, role))

    def has(self, role: str) -> bool:
        return (role != "weight_packed" or self._has_codes) and super().has(role)

    def shape(self, role: str) -> tuple[int, ...]:
        found = super().shape(role)
        if role != _SCALE or not self._by_block:
            return found
        if len(found) == 4 and found[1::2] == (1, 1):
            return found[::2]
        return found or (1, 1)

    def dtype(self, role: str) -> torch.dtype | str:
        found = super().dtype(role)
        is_power = role == _SCALE and found == torch.uint8 and not self._has_codes
        return E8M0 if is_power else found

    def load(self, role: str) -> Tensor:
        found = super().load(role)
        if role == GLOBAL:
            return self._inverse(found)
        if role != _SCALE:
            return found
        return (found.view(E8M0) if self.dtype(role) == E8M0 else found).reshape(self.shape(role))

    def _inverse(self, whole: Tensor) -> Tensor:
        inverse = 1 / whole
        if not bool((whole > 0).all()) or not bool((inverse.isfinite() & (inverse > 0)).all()):
            value = whole.flatten()[0].item()
            reason = f"and its inverse must be positive and finite in float32, got {value}"
            raise self.error(_WHOLE, reason)
        return inverse
