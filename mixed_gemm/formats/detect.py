"""Which format a checkpoint has: what its configuration says, else what its tensors look like."""

from __future__ import annotations

from pathlib import Path

import torch

from ..ops.problem import DTYPES
from .codec import CODECS, Codec
from .config import method_of
from .errors import CheckpointError
from .index import TensorIndex
from .keys import check_keys
from .layer import Config, LayerTensors, modules_with


def named_format(config: Config) -> str:
    """The key in CODECS that the configuration names; empty when it names none."""
    method = method_of(config)
    named = (config.get(key) for key in ("version", "format", "checkpoint_format"))
    version = str(next(filter(None, named), "gemm")).lower()
    if method == "awq":
        is_llm = "llm-awq" in (config.get("backend"), version)
        return "llm-awq" if is_llm else f"awq {version}"
    if method == "gpt_oss_mxfp4":  # as vLLM calls it
        return "mxfp4"
    if method == "auto-round":
        packing = str(config.get("packing_format") or "")
        return "awq gemm" if "awq" in packing else "gptq" if "gptq" in packing else packing
    if not method and "w_bit" in config:  # quant_config.json of AutoAWQ
        return f"awq {version}"
    if not method and "damp_percent" in config:  # quantize_config.json of AutoGPTQ
        return "gptq"
    return method


def _by_tensors(index: TensorIndex) -> str:
    """The same from the first quantized layer; empty when nothing looks quantized."""
    if any(index.is_part(name) for name in index.names()):
        return "mxfp4"
    if modules_with(index, "weight_packed"):
        return "compressed-tensors"
    if modules_with(index, "b_packed"):
        return "mixed_gemm"
    if modules_with(index, "weight_scale_inv"):
        return "fp8"
    if modules_with(index, "weight.absmax"):
        return "bitsandbytes"
    names = modules_with(index, "qweight")
    if not names and modules_with(index, "weight_scale"):
        return "compressed-tensors"
    if not names:
        return ""
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


def _section(kind: str, config: Config) -> str:
    """The section of ``key_table.TABLE`` for a configuration of this kind."""
    if method_of(config) == "auto-round":
        return "auto-round"
    return "awq" if "awq" in kind else "fp8" if kind.startswith("fp8") else kind


def detect(config: Config, where: Path, index: TensorIndex) -> Codec:
    """The codec that reads a file. Warns of keys of the configuration that nobody here knows.

    Args:
        config: the quantization_config. where: the file that it stands in. index: the tensors.

    Raises:
        CheckpointError: the format is none that is read here, or the configuration asks for what
            is not done here. ValueError: it has an option that its format does not allow.
    """
    kind = named_format(config) or _by_tensors(index)
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
        read = ", ".join(CODECS)
        raise CheckpointError(where, "", f"the format {kind!r} is not read; {read} are")
    answer = check_keys(config, _section(kind, config), where)
    codec = CODECS[kind](config, where)
    codec.notes, codec.lost = (*codec.notes, *answer.notes), (*codec.lost, *answer.lost)
    return codec
