"""A configuration of ModelOpt in the words of compressed-tensors, whose reader reads the layers.

Its ``quant_algo`` names what weights and activations are; "MIXED_PRECISION" names it layer by layer
in ``quantized_layers``. Source: modelopt/torch/export/quant_utils.py and convert_hf_config.py of
the package nvidia-modelopt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import CheckpointError
from .layer import Config, int_option

MIXED = "MIXED_PRECISION"
_FLOAT4 = {"num_bits": 4, "type": "float", "symmetric": True, "dynamic": False}
_FLOAT8 = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": False}
_E4M3 = {**_FLOAT4, "strategy": "tensor_group", "scale_dtype": "torch.float8_e4m3fn"}
_E8M0 = {**_FLOAT4, "strategy": "group", "scale_dtype": "torch.uint8"}


@dataclass(frozen=True)
class Algo:
    """The weights and activations that a ``quant_algo`` stands for.

    form: the format of compressed-tensors with such weights. weights: their arguments there.
    activations: those of activations, None where they are left in their dtype.
    """

    form: str
    weights: dict[str, Any] = field(default_factory=dict)
    activations: dict[str, Any] | None = None


_NVFP4, _MXFP4, _FP8 = "nvfp4-pack-quantized", "mxfp4-pack-quantized", "float-quantized"
ALGOS = {
    "NVFP4": Algo(_NVFP4, _E4M3, {**_FLOAT4, "dynamic": "local"}),
    "NVFP4_AWQ": Algo(_NVFP4, _E4M3, {**_FLOAT4, "dynamic": "local"}),
    "W4A16_NVFP4": Algo(_NVFP4, _E4M3),
    "W4A8_NVFP4_FP8": Algo(_NVFP4, _E4M3, _FLOAT8),
    "MXFP4": Algo(_MXFP4, _E8M0, {**_FLOAT4, "dynamic": True}),
    "W4A8_MXFP4_FP8": Algo(_MXFP4, _E8M0, _FLOAT8),
    "FP8": Algo(_FP8, {**_FLOAT8, "strategy": "tensor"}, {**_FLOAT8, "strategy": "tensor"}),
    "FP8_PER_CHANNEL_PER_TOKEN": Algo(
        _FP8,
        {**_FLOAT8, "strategy": "channel"},
        {**_FLOAT8, "strategy": "token", "dynamic": True},
    ),
    # No file says how large a block is: ModelOpt's preset has these, and so has vLLM.
    "FP8_PB_WO": Algo(_FP8, {**_FLOAT8, "strategy": "block", "block_structure": [128, 128]}),
    # Activations have scales of a byte, which no layer here rounds by.
    "MXFP8": Algo(
        _FP8,
        {**_FLOAT8, "strategy": "group", "group_size": 32},
        {**_FLOAT8, "strategy": "group", "dynamic": True, "scale_dtype": "torch.uint8"},
    ),
}


def algo_of(config: Mapping[str, Any]) -> str:
    """The ``quant_algo`` in upper case, as some releases write it and others do not; empty where
    there is none."""
    return str(config.get("quant_algo") or "").upper()


def listed_layers(config: Config) -> dict[str, Mapping[str, Any]]:
    """Name of a layer -> what ``quantized_layers`` says of it."""
    layers = config.get("quantized_layers")
    found = layers if isinstance(layers, Mapping) else {}
    return {name: said for name, said in found.items() if isinstance(said, Mapping)}


def as_compressed(config: Config, where: Path) -> dict[str, Any]:
    """The configuration of compressed-tensors that says the same of weights and activations.

    Args:
        config: of ModelOpt. where: the file that it stands in.

    Raises:
        CheckpointError: a ``quant_algo`` is none of ``ALGOS``, or no layer is named.
    """
    if algo_of(config) != MIXED:
        size = int_option(config, where, "group_size") or _size_in_groups(config, where)
        return _configuration({"all": _group(config, where, "quant_algo", size, ["Linear"])})
    layers = listed_layers(config)
    if not layers:
        reason = f"quant_algo is {MIXED}, which needs an object quantized_layers that is not empty"
        raise CheckpointError(where, "", reason)
    groups: dict[str, dict[str, Any]] = {}
    for name, said in layers.items():
        path = f"quantized_layers.{name}.quant_algo"
        made = _group(said, where, path, int_option(said, where, "group_size"), [])
        groups.setdefault(repr(made), made)["targets"].append(name)
    return _configuration(groups)


def _configuration(groups: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    formats = {group["format"] for group in groups.values()}
    return {
        "quant_method": "compressed-tensors",
        "format": formats.pop() if len(formats) == 1 else "mixed-precision",
        "config_groups": dict(groups),
    }


def _group(
    said: Mapping[str, Any], where: Path, path: str, size: int | None, targets: list[str]
) -> dict[str, Any]:
    name = algo_of(said)
    algo = ALGOS.get(name)
    if algo is None:
        reason = f"{path} must be {', '.join(ALGOS)} or {MIXED}, got {said.get('quant_algo')!r}"
        raise CheckpointError(where, "", reason)
    has_groups = algo.weights["strategy"] in ("group", "tensor_group")
    stated = {"group_size": size} if size is not None and has_groups else {}
    return {
        "format": algo.form,
        "targets": targets,
        "weights": {**algo.weights, **stated},
        "input_activations": algo.activations,
    }


def _size_in_groups(config: Config, where: Path) -> int | None:
    """The group size that config.json says in ``config_groups`` alone; None where it says none."""
    sizes = {int_option(x, where, "group_size") for x in _weights_in_groups(config)} - {None}
    if len(sizes) > 1:
        reason = f"config_groups must have one group_size, got {sorted(map(str, sizes))}"
        raise CheckpointError(where, "", reason)
    return sizes.pop() if sizes else None


def _weights_in_groups(config: Config) -> Iterator[Mapping[str, Any]]:
    groups = config.get("config_groups")
    for group in groups.values() if isinstance(groups, Mapping) else ():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if isinstance(weights, Mapping):
            yield weights
