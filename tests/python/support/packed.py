"""A random layer in the tensors of each format, whose last group may be short, and the weight that
it stands for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from problems.awq import awq_words
from safetensors.torch import load_file, save_file
from torch import Tensor

from mixed_gemm.formats.bitfields import pack_dense


@dataclass(frozen=True)
class Layer:
    """codes uint8 ``[N, K]``, zeros uint8 and scales float16 ``[G, N]``, groups int64 ``[K]``: the
    group of each column; w = (code - zero) * scale."""

    codes: Tensor
    zeros: Tensor
    scales: Tensor
    groups: Tensor
    bits: int

    def weight(self) -> Tensor:
        """float32 ``[N, K]``, exact."""
        zeros, scales = self.zeros.long()[self.groups].t(), self.scales.float()[self.groups].t()
        return (self.codes.long() - zeros).float() * scales


def random_layer(
    n: int, k: int, group_size: int, bits: int = 4, symmetric: bool = True, seed: int = 0
) -> Layer:
    """Args: group_size: -1 is all of K."""
    g = torch.Generator().manual_seed(seed)
    size = k if group_size == -1 else group_size
    groups = torch.arange(k) // size
    count, middle = int(groups[-1]) + 1, 2 ** (bits - 1)
    zeros = torch.full((count, n), middle)
    if not symmetric:
        zeros = torch.randint(middle - 1, middle + 2, (count, n), generator=g)
    return Layer(
        torch.randint(0, 2**bits, (n, k), generator=g).to(torch.uint8),
        zeros.to(torch.uint8),
        ((0.5 + torch.rand(count, n, generator=g)) / 16).half(),
        groups,
        bits,
    )


def gptq(layer: Layer, g_idx: bool = True) -> dict[str, Tensor]:
    """Zero points less one, as GPTQ v1 has them."""
    stored = (layer.zeros - 1) & (2**layer.bits - 1)
    tensors = {
        "qweight": pack_dense(layer.codes, layer.bits).t().contiguous(),
        "qzeros": pack_dense(stored, layer.bits),
        "scales": layer.scales,
    }
    return {**tensors, "g_idx": layer.groups.int()} if g_idx else tensors


def awq(layer: Layer) -> dict[str, Tensor]:
    return {
        "qweight": awq_words(layer.codes.t().long()),
        "qzeros": awq_words(layer.zeros.long()),
        "scales": layer.scales,
    }


def compressed(layer: Layer) -> dict[str, Tensor]:
    """pack-quantized."""
    return {
        "weight_packed": pack_dense(layer.codes, layer.bits),
        "weight_shape": torch.tensor(layer.codes.shape),
        "weight_scale": layer.scales.t().contiguous(),
        "weight_zero_point": pack_dense(layer.zeros, layer.bits).t().contiguous(),
    }


def group(targets: list[str], layer: Layer, group_size: int) -> dict[str, Any]:
    """A config group of compressed-tensors."""
    weights = {"num_bits": layer.bits, "type": "int", "symmetric": False, "dynamic": False}
    return {
        "targets": targets,
        "weights": {**weights, "strategy": "group", "group_size": group_size},
    }


def write(folder: Path, layers: Mapping[str, Mapping[str, Tensor]], quantization: Any) -> Path:
    """A checkpoint of these layers (name -> role -> tensor); None leaves config.json out."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {f"{name}.{role}": x for name, parts in layers.items() for role, x in parts.items()}
    save_file(tensors, folder / "model.safetensors")
    if quantization is not None:
        config = {"quantization_config": quantization}
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def rewrite(
    folder: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]], quantization: Any
) -> None:
    """Change the tensors of a folder that save_pretrained wrote, and say that it is quantized."""
    file = folder / "model.safetensors"
    tensors = change(load_file(file))
    save_file({name: x.contiguous() for name, x in tensors.items()}, file, {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = quantization
    (folder / "config.json").write_text(json.dumps(config))
