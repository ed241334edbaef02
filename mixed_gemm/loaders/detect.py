"""Which format a checkpoint has: what its configuration says, else what its tensors look like."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from .awq import AwqGemm
from .errors import CheckpointError
from .index import TensorIndex
from .layer import Config, LayerInfo, LayerTensors
from .weight import QuantizedWeight


class Format(Protocol):
    """One checkpoint format: finds its layers by a tensor that each has, the anchor."""

    title: str
    anchor: str
    roles: tuple[str, ...]

    def describe(self, layer: LayerTensors) -> LayerInfo: ...
    def decode(self, layer: LayerTensors, info: LayerInfo) -> QuantizedWeight: ...


def detect(config: Config, where: Path, index: TensorIndex) -> Format:
    method = str(config.get("quant_method", "")).lower()
    if method == "awq":
        return AwqGemm(config, where)
    raise CheckpointError(where, "", f"quantization method {method!r} is not known")
