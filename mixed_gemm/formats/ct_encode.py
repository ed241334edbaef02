"""A QuantizedWeight in the tensors and the configuration of compressed-tensors: pack-quantized for
integers, float-quantized for float8. Only what every reader since 0.10 understands.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ..weights.exchange import QuantizedWeight
from .bitfields import pack_dense, to_codes


def integer_zeros(weight: QuantizedWeight) -> Tensor | None:
    """int8 ``[G, N]``, None for symmetric weights.

    Raises:
        ValueError: a zero point is no integer in the range of q. Zeros of the "add" kind are
            integers when they are the rounded product -(integer * scale).
    """
    if weight.zeros is None:
        return None
    zeros = weight.zeros.float()
    if weight.zero_mode == "add":
        zeros = torch.round(-zeros / weight.scales.float())
        again = (-zeros * weight.scales.float()).to(weight.scales.dtype)
        exact = torch.equal(again, weight.zeros)
    else:
        exact = torch.equal(zeros, zeros.round())
    low = -(2 ** (weight.bits - 1))
    if not exact or not bool(((zeros >= low) & (zeros < -low)).all()):
        raise ValueError(
            f"{weight.name}: compressed-tensors has integer zero points in {low}..{-low - 1}, and "
            f"those of zero_mode {weight.zero_mode!r} here are others, in "
            f"{float(zeros.min()):.6g}..{float(zeros.max()):.6g}. Hint: quantize with "
            "symmetric=True or zero_mode='sub'"
        )
    return zeros.to(torch.int8)


def encode(weight: QuantizedWeight) -> dict[str, Tensor]:
    """Role -> tensor, as compressed_tensors.py reads them.

    Raises:
        ValueError: the weight has a permutation, a pre_scale or zeros that the format has no
            place for.
    """
    for field, hint in (
        ("permutation", "act-order files are read, but the format dropped them in 0.19"),
        ("pre_scale", "fold it into the layer before, or into the weight before quantizing"),
    ):
        if getattr(weight, field) is not None:
            raise ValueError(
                f"{weight.name}: compressed-tensors cannot hold a {field}. Hint: {hint}"
            )
    tensors = {"weight_scale": weight.scales.t()}
    if weight.is_fp8:
        tensors["weight"] = weight.q
        rows = _rows_per_block(weight)
        tensors["weight_scale"] = tensors["weight_scale"][::rows]
    else:
        tensors["weight_packed"] = pack_dense(to_codes(weight.q, weight.bits), weight.bits)
        tensors["weight_shape"] = torch.tensor(weight.shape, dtype=torch.int64, device="cpu")
        zeros = integer_zeros(weight)
        if zeros is not None:
            tensors["weight_zero_point"] = pack_dense(to_codes(zeros, weight.bits), weight.bits).t()
    if weight.bias is not None:
        tensors["bias"] = weight.bias
    return tensors


def _rows_per_block(weight: QuantizedWeight) -> int:
    """1 for a scale per row; else how many rows share one: what the file's blocks had."""
    if weight.group_size == -1:
        return 1
    n = weight.shape[0]
    for rows in (weight.group_size, 128, 64, 32):
        repeated = weight.scales[:, ::rows].repeat_interleave(rows, dim=1)[:, :n]
        if torch.equal(repeated, weight.scales):
            return rows
    return 1


def arguments(weight: QuantizedWeight) -> dict[str, Any]:
    """The "weights" of a config group."""
    common: dict[str, Any] = {
        "num_bits": weight.bits,
        "type": "float" if weight.is_fp8 else "int",
        "symmetric": weight.zeros is None,
        "dynamic": False,
    }
    if weight.group_size == -1:
        return {**common, "strategy": "channel"}
    if weight.is_fp8:
        block = [_rows_per_block(weight), weight.group_size]
        return {**common, "strategy": "block", "block_structure": block}
    return {**common, "strategy": "group", "group_size": weight.group_size}


def configuration(layers: dict[str, dict[str, Any]], ignore: Iterable[str]) -> dict[str, Any]:
    """The quantization_config of a model whose layers have these :func:`arguments`, by name."""
    groups: dict[str, dict[str, Any]] = {}
    for name, weights in layers.items():
        form = "float-quantized" if weights["type"] == "float" else "pack-quantized"
        group: dict[str, Any] = {
            "weights": weights,
            "format": form,
            "input_activations": None,
            "targets": [],
        }
        groups.setdefault(repr(weights), group)["targets"].append(name)
    kinds = list(groups.values())
    if len(kinds) == 1:
        kinds[0]["targets"] = ["Linear"]
    formats = {group["format"] for group in kinds}
    return {
        "quant_method": "compressed-tensors",
        "format": formats.pop() if len(formats) == 1 else "mixed-precision",
        "quantization_status": "compressed",
        "ignore": sorted(ignore),
        "config_groups": {f"group_{i}": group for i, group in enumerate(kinds)},
        "kv_cache_scheme": None,
    }
