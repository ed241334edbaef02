"""Which format a checkpoint has: what its configuration says, else what its tensors look like."""

from __future__ import annotations

from pathlib import Path

import torch

from ..ops.problem import DTYPES
from .codec import CODECS, Codec
from .errors import CheckpointError
from .index import TensorIndex
from .layer import Config, LayerTensors, modules_with


def _by_config(config: Config) -> str:
    """The key in CODECS that the configuration names; empty when it names none."""
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
    if modules_with(index, "b_packed"):
        return "mixed_gemm"
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


def detect(config: Config, where: Path, index: TensorIndex) -> Codec:
    """Raises CheckpointError when the format is none that is read here."""
    kind = _by_config(config) or _by_tensors(index)
    if not kind:
        raise CheckpointError(
            index.path,
            "",
            "holds no quantized tensors that are known, and no quantization_config. Hint: "
            "mixed_gemm.quantize_ quantizes a dense model",
        )
    whole = kind == "fp8" and modules_with(index, "weight_scale")
    if whole and not modules_with(index, "weight_scale_inv"):
        kind = "fp8 per tensor"  # as AutoFP8 names its scales
    if kind not in CODECS:
        raise CheckpointError(
            where, "", f"the format {kind!r} is not read; {', '.join(CODECS)} are"
        )
    return CODECS[kind](config, where)
