"""The text about a folder without a model: what else it is, as trainers leave folders, and where
the model is.
"""

from __future__ import annotations

from pathlib import Path

from .adapter import ADAPTER, TENSORS, without_model
from .errors import CheckpointError

_CONFIGS = ("config.json", ADAPTER)
_MOST = 4  # folders that are named
# Files beside a model that hold tensors and are none of it: an adapter, and what transformers'
# Trainer and accelerate keep to go on with.
_ASIDE = (
    TENSORS,
    "training_args.",
    "optimizer",
    "scheduler",
    "sampler",
    "scaler.",
    "dl_state_dict",
)


class NoModelError(CheckpointError):
    """There is no model where one was to be read."""


def is_aside(file: Path) -> bool:
    """Whether a file of tensors is no part of the model that it lies beside, by its name.
    consolidated*.safetensors repeats all weights under other names."""
    return file.name.startswith(_ASIDE) or "consolidated" in file.name


def why_no_model(folder: Path) -> str:
    """The reason, and a hint, for a folder without a file of a model's tensors."""
    if (folder / ADAPTER).exists() or any(folder.glob(f"{TENSORS}*")):
        return without_model(folder)
    return f"no .safetensors, .bin or .pt file in this folder{hint_of(folder)}"


def hint_of(folder: Path) -> str:
    """ ". Hint: ..." for a folder that has no model itself; empty where nothing is known of it."""
    if any(folder.glob("*.gguf")):
        return ". Hint: name one of its .gguf files"
    if any(folder.glob("*.distcp")) or any(folder.glob("*_fsdp_*/*.distcp")):
        return (
            ". Hint: it holds shards of torch.distributed.checkpoint, which accelerate "
            "merge-weights FOLDER OUT makes one file of"
        )
    if (folder / "zero_to_fp32.py").is_file():
        return (
            ". Hint: it holds shards of DeepSpeed: python zero_to_fp32.py FOLDER OUT writes a model"
        )
    inside = sorted(x.name for x in folder.iterdir() if any((x / y).is_file() for y in _CONFIGS))
    if not inside:
        return ""
    more = f" and {len(inside) - _MOST} more" if len(inside) > _MOST else ""
    return f". Hint: name one of its folders, {', '.join(inside[:_MOST])}{more}"
