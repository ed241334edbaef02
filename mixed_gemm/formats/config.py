"""The quantization part of a checkpoint's configuration, wherever its writer put it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .json_file import read_json

_KEYS = ("quantization_config", "compression_config")
# Models with several towers keep the language model's configuration in a part of its own.
_PARTS = ("text_config", "language_config", "llm_config", "thinker_config")
_LEGACY = ("quantize_config.json", "quant_config.json")


def _inside(config: Mapping[str, Any]) -> dict[str, Any] | None:
    for part in (config, *(config.get(name) for name in _PARTS)):
        if not isinstance(part, Mapping):
            continue
        for key in _KEYS:
            if isinstance(part.get(key), Mapping):
                return dict(part[key])
    return None


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
    for name in _LEGACY:
        if _is_there(folder / name):
            return read_json(folder / name), folder / name
    return {}, path
