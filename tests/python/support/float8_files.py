"""Model folders with float8 linears in the layouts that are found, written by hand: the tensors are
those of ``tiny_llama.float_grid``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from support import tiny_llama
from support.tiny_llama import FloatGrid
from torch import Tensor

FP8 = {"num_bits": 8, "type": "float", "symmetric": True}
TOKEN = {**FP8, "strategy": "token", "dynamic": True}
TENSOR = {**FP8, "strategy": "tensor", "dynamic": False}
GROUP = {**FP8, "strategy": "group", "group_size": 64, "dynamic": True}


def compressed(weights: dict[str, Any], activations: dict[str, Any] | None) -> dict[str, Any]:
    """A quantization_config of compressed-tensors, as llm-compressor writes it."""
    group = {
        "targets": ["Linear"],
        "weights": {
            **FP8,
            "dynamic": False,
            "observer": "minmax",
            "observer_kwargs": {},
            **weights,
        },
        "input_activations": activations,
        "output_activations": None,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "quantization_status": "compressed",
        "global_compression_ratio": None,
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        "config_groups": {"group_0": group},
    }


def plain(**options: Any) -> dict[str, Any]:
    """A quantization_config of quant_method "fp8"."""
    return {"quant_method": "fp8", "fmt": "e4m3", **options}


BLOCK = {"strategy": "block", "block_structure": [32, 64]}
# layout -> (quantization_config, strategy and block of the weights, role of their scales, dtype of
# the scales, role of the static scale)
LAYOUTS: dict[str, tuple[dict[str, Any], str, list[int] | None, str, torch.dtype, str]] = {
    "ct channel, dynamic": (
        compressed({"strategy": "channel"}, TOKEN),
        *("channel", None, "weight_scale", torch.bfloat16, ""),
    ),
    "ct tensor, static": (
        compressed({"strategy": "tensor"}, TENSOR),
        *("tensor", None, "weight_scale", torch.float32, "input_scale"),
    ),
    "ct tensor, weight only": (
        compressed({"strategy": "tensor"}, None),
        *("tensor", None, "weight_scale", torch.float16, ""),
    ),
    "ct block": (compressed(BLOCK, GROUP), "block", [32, 64], "weight_scale", torch.float32, ""),
    "deepseek": (
        plain(weight_block_size=[32, 64], activation_scheme="dynamic"),
        *("block", [32, 64], "weight_scale_inv", torch.float32, ""),
    ),
    "deepseek, one block": (
        plain(weight_block_size=[128, 128], activation_scheme="dynamic"),
        *("block", [128, 128], "weight_scale_inv", torch.float32, ""),
    ),
    "deepseek, ragged": (
        plain(weight_block_size=[48, 40], activation_scheme="dynamic"),
        *("block", [48, 40], "weight_scale_inv", torch.float32, ""),
    ),
    "transformers, static": (
        plain(weight_block_size=None, activation_scheme="static"),
        *("tensor", None, "weight_scale_inv", torch.float32, "activation_scale"),
    ),
    "autofp8, static": (
        plain(activation_scheme="static", ignored_layers=["lm_head"]),
        *("tensor", None, "weight_scale", torch.float32, "input_scale"),
    ),
    "autofp8, dynamic": (
        plain(activation_scheme="dynamic", ignored_layers=["lm_head"]),
        *("tensor", None, "weight_scale", torch.float32, ""),
    ),
}


def grids(layout: str) -> dict[str, FloatGrid]:
    """Name of a linear -> what is in the file."""
    _, strategy, block, _, _, _ = LAYOUTS[layout]
    return {
        name: tiny_llama.float_grid(name, n, k, strategy, block)
        for name, (n, k) in tiny_llama.LINEARS.items()
    }


def tensors(layout: str) -> dict[str, Tensor]:
    """The tensors of the linears, by name."""
    _, _, _, role, dtype, static = LAYOUTS[layout]
    found = {}
    for i, (name, grid) in enumerate(grids(layout).items()):
        scales = grid.file_scales.to(dtype)
        scalar = role == "weight_scale_inv" and scales.numel() == 1 and grid.block[0] != 128
        found[f"{name}.weight"] = grid.values
        found[f"{name}.{role}"] = scales.reshape(()) if scalar else scales
        if static:
            found[f"{name}.{static}"] = torch.tensor(0.01 * (i + 1)).reshape(() if scalar else (1,))
    return found


def write(layout: str, folder: Path) -> Path:
    """A folder as from_pretrained takes it."""
    folder.mkdir(parents=True)
    whole = {**tiny_llama.plain_tensors(), **tensors(layout)}
    save_file({k: v.contiguous() for k, v in whole.items()}, folder / "model.safetensors")
    config = {**tiny_llama.CONFIG, "quantization_config": LAYOUTS[layout][0]}
    (folder / "config.json").write_text(json.dumps(config))
    return folder
