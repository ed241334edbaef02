"""The files that peft writes of an adapter: adapter_config.json, which names the model that it is
for, and its tensors, alone in a folder or beside the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import CheckpointError
from .json_file import read_json

ADAPTER = "adapter_config.json"
# Its tensors, by how the names of their files begin.
TENSORS = "adapter_model."
FILES = (ADAPTER, f"{TENSORS}safetensors", f"{TENSORS}bin")


def adapter_config(file: Path) -> dict[str, Any]:
    """Read an adapter_config.json.

    Raises:
        CheckpointError: it is no readable JSON object.
    """
    return read_json(file)


def told(config: Mapping[str, Any]) -> str:
    """Its kind and the model that it is for, in words."""
    kind, base = config.get("peft_type") or "of peft", config.get("base_model_name_or_path")
    return f"an adapter ({kind}) for {base or 'a model that it does not name'}"


def base_of(file: Path, config: Mapping[str, Any]) -> str:
    """The folder or hub id of the model that an adapter is for.

    Args:
        file: the adapter_config.json. config: what it says.

    Raises:
        CheckpointError: it names none.
    """
    base = config.get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise CheckpointError(
            file,
            "base_model_name_or_path",
            f"must name the model that the adapter is for, got {base!r}. Hint: write its folder or "
            "hub id there",
        )
    return base


def without_model(folder: Path) -> str:
    """Why a folder with an adapter and no model is not read, and what to do."""
    found = adapter_config(folder / ADAPTER) if (folder / ADAPTER).is_file() else {}
    return (
        f"holds {told(found)}, and no model. Hint: mixed_gemm.from_pretrained and mixed-gemm eval "
        "load the model with the adapter on it; quantize, convert and open the model itself, and "
        "keep the adapter apart; or make one model of both first: peft.AutoPeftModelForCausalLM."
        "from_pretrained(FOLDER).merge_and_unload().save_pretrained(NEW)"
    )
