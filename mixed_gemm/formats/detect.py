"""Which format a checkpoint has: what its configuration says, else what its tensors look like."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import torch

from ..ops.problem import DTYPES
from ..weights.exchange import QuantizedWeight
from .awq import AwqGemm
from .awq_gemv import AwqGemv, AwqGemvFast
from .compressed_tensors import CompressedTensors
from .errors import CheckpointError
from .gptq import Gptq
from .index import TensorIndex
from .layer import Config, LayerInfo, LayerTensors, modules_with


class Format(Protocol):
    """One checkpoint format: finds its layers by a tensor that each of them has, the anchor. Notes
    say what the file asks for and is not done here."""

    title: str
    anchor: str
    roles: tuple[str, ...]
    notes: tuple[str, ...]

    def describe(self, layer: LayerTensors) -> LayerInfo: ...
    def decode(self, layer: LayerTensors, info: LayerInfo) -> QuantizedWeight: ...


Make = Callable[[Config, Path], Format]

_MAKE: dict[str, Make] = {
    "awq gemm": AwqGemm,
    "awq gemv": AwqGemv,
    "awq gemv_fast": lambda config, where: AwqGemvFast(config, where, "qzeros"),
    "llm-awq": lambda config, where: AwqGemvFast(config, where, "scaled_zeros"),
    "gptq": Gptq,
    "compressed-tensors": CompressedTensors,
    "fp8": lambda config, where: CompressedTensors(config, where, "weight_scale_inv"),
}


def _by_config(config: Config) -> str:
    """The key in _MAKE that the configuration names; empty when it names none."""
    method = str(config.get("quant_method") or "").lower()
    version = str(config.get("version") or config.get("format") or "gemm").lower()
    if method == "awq":
        return "llm-awq" if config.get("backend") == "llm-awq" else f"awq {version}"
    if method in ("auto-round", "intel/auto-round"):
        packing = str(config.get("packing_format") or "")
        return "awq gemm" if "awq" in packing else "gptq" if "gptq" in packing else packing
    if not method and "w_bit" in config:  # quant_config.json of AutoAWQ
        return f"awq {version}"
    if not method and "damp_percent" in config:  # quantize_config.json of AutoGPTQ
        return "gptq"
    return method


def _by_tensors(index: TensorIndex) -> str:
    """The same from the first quantized layer; empty when nothing looks quantized."""
    if modules_with(index, "weight_packed"):
        return "compressed-tensors"
    if modules_with(index, "weight_scale_inv"):
        return "fp8"
    names = modules_with(index, "qweight")
    if not names:
        return "compressed-tensors" if modules_with(index, "weight_scale") else ""
    layer = LayerTensors(index, names[0])
    if layer.dtype("qweight") == torch.int16:
        return "llm-awq" if layer.has("scaled_zeros") else "awq gemv_fast"
    if layer.has("g_idx"):
        return "gptq"
    rows, columns = layer.matrix("qweight", torch.int32)
    scales = layer.matrix("scales", *DTYPES)
    if columns * 8 == scales[1]:
        return "awq gemm"
    return "gptq" if columns == scales[1] else "awq gemv" if scales[0] == rows else ""


def detect(config: Config, where: Path, index: TensorIndex) -> Format:
    """Raises CheckpointError when the format is none that is read here."""
    kind = _by_config(config) or _by_tensors(index)
    if not kind:
        raise CheckpointError(
            index.path,
            "",
            "holds no quantized tensors that are known, and no quantization_config. Hint: "
            "mixed_gemm.quantize_ quantizes a dense model",
        )
    if kind not in _MAKE:
        raise CheckpointError(where, "", f"the format {kind!r} is not read; {', '.join(_MAKE)} are")
    return _MAKE[kind](config, where)
