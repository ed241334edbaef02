"""Tensors of a file that no codec reads and that are no ordinary ones either: they are named, since
what a layer computes without them may be something else.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection

import torch

from .codec import Codec
from .errors import CheckpointError, CheckpointWarning
from .experts import is_expert, refusal
from .index import TensorIndex
from .inside import owners
from .kv_cache import ANNOUNCED

_ORDINARY = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def check_unread(index: TensorIndex, codec: Codec, layers: Collection[str]) -> None:
    """Look at all tensors beside those of quantized layers.

    Args:
        index: of the file. codec: that reads it. layers: names of its quantized layers.

    Raises:
        CheckpointError: one is float8, and no scale of it is known; or holds quantized experts.

    Warns of tensors that lie inside a quantized layer and are none of its own.
    """
    names, strange = set(layers), []
    for name in index.names():
        role = next((name[len(x) + 1 :] for x in owners(name) if x in names), None)
        if role is None:
            _refuse(index, codec, name)
        elif role not in codec.roles and role not in ANNOUNCED:
            strange.append(name)
    if strange:
        more = f" and {len(strange) - 3} more" if len(strange) > 3 else ""
        warnings.warn(
            f"{index.path}: {', '.join(strange[:3])}{more} are inside of quantized layers, but "
            f"{codec.title} has no such tensors, and nothing here computes with them",
            CheckpointWarning,
            stacklevel=3,
        )


def _refuse(index: TensorIndex, codec: Codec, name: str) -> None:
    dtype = index.dtype(name)
    if dtype in _ORDINARY:
        return
    is_float8 = "float8" in str(dtype) or "F8" in str(dtype)
    if is_expert(name) and (is_float8 or len(index.shape(name)) > 2):
        raise CheckpointError(index.file(name), name, refusal())
    if is_float8:
        raise CheckpointError(
            index.file(name), name, f"is {dtype}, and no {codec.anchor} beside it is its scale"
        )
