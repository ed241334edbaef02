"""The quantization part of a checkpoint's configuration, wherever its writer put it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .json_file import read_json

_KEYS = ("quantization_config", "compression_config")
# Models with several towers keep the language model's configuration in a part of its own.
_PARTS = ("text_config", "language_config", "llm_config", "thinker_config")
# Files beside config.json that say it where it does not: of AutoGPTQ, AutoAWQ and ModelOpt.
LEGACY = ("quantize_config.json", "quant_config.json", "hf_quant_config.json")
# Other names of a quant_method.
_ALIASES = {
    "compressed_tensors": "compressed-tensors",
    "intel/auto-round": "auto-round",
    "modelopt_fp4": "modelopt",
    "modelopt_mxfp8": "modelopt",
    "modelopt_mixed": "modelopt",
}


def _inside(config: Mapping[str, Any]) -> dict[str, Any] | None:
    for part in (config, *(config.get(name) for name in _PARTS)):
        if not isinstance(part, Mapping):
            continue
        for key in _KEYS:
            if isinstance(part.get(key), Mapping):
                return dict(part[key])
    return None


def without_quantization(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a model without what it says of quantization, in its parts too."""
    found = {key: value for key, value in config.items() if key not in _KEYS}
    for part in _PARTS:
        if isinstance(found.get(part), Mapping):
            found[part] = {k: v for k, v in found[part].items() if k not in _KEYS}
    return found


def method_of(config: Mapping[str, Any]) -> str:
    """The quant_method of a configuration in lower case, under the name that it has today; empty
    where it names none."""
    keys = ("quant_method", "method", "quant_library")  # the last of ModelOpt before 0.30
    named = str(next(filter(None, map(config.get, keys)), "")).lower()
    return _ALIASES.get(named, named)


def legacy_config(file: Path) -> dict[str, Any]:
    """The quantization_config in one of :data:`LEGACY`."""
    found = read_json(file)
    if isinstance(found.get("quantization"), Mapping):  # ModelOpt puts it one step down
        return {"quant_method": "modelopt", **found["quantization"]}
    return found


def _is_there(path: Path) -> bool:
    """A link to nothing, a folder or a pipe is there too: reading it says what it is."""
    return path.exists() or path.is_symlink()


def model_config(path: Path) -> dict[str, Any]:
    """``config.json`` of the folder; empty when there is none."""
    folder = path if path.is_dir() else path.parent
    return read_json(folder / "config.json") if _is_there(folder / "config.json") else {}


def quantization_config(path: Path, model: Mapping[str, Any]) -> tuple[dict[str, Any], Path]:
    """The configuration (empty when there is none) and the file it is from.

    Args:
        path: of the checkpoint.
        model: its :func:`model_config`.
    """
    folder = path if path.is_dir() else path.parent
    found = _inside(model)
    if found is not None:
        return found, folder / "config.json"
    for name in LEGACY:
        if _is_there(folder / name):
            return legacy_config(folder / name), folder / name
    return {}, path
