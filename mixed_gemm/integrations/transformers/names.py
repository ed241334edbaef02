"""Names of modules in files and in the model: transformers renames keys of older files, and adds or
drops the prefix of the base model. transformers itself is asked.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from transformers.core_model_loading import (
    WeightConverter,
    WeightRenaming,
    rename_source_key,
    revert_weight_conversion,
)

from .pending import attribute_of

_WEIGHT = ".weight"


def attribute_renamings(roles: Iterable[str]) -> list[WeightRenaming]:
    """Return how keys of the files become names of parameters, where torch takes theirs for none.

    Args:
        roles: of the tensors of a quantized layer.
    """
    return [
        WeightRenaming(rf"\.{re.escape(role)}$", f".{attribute_of(role)}")
        for role in roles
        if attribute_of(role) != role
    ]


def module_names(
    model: Any, mapping: Sequence[Any], names: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Return (name in the file, name in the model) of each module.

    Args:
        mapping: how transformers converts the keys of the files, the ``key_mapping`` of the user
            included.
        names: of modules in the files.
    """
    mapping = copy.deepcopy(list(mapping))  # which remember what they were used for
    renamings = [x for x in mapping if isinstance(x, WeightRenaming)]
    converters = [x for x in mapping if isinstance(x, WeightConverter)]
    state = model.state_dict()
    for name in names:
        # This is what convert_and_load_state_dict_in_model does, for the weight the module would
        # have.
        key = f"{name}.weight"
        renamed, _ = rename_source_key(key, renamings, converters, model.base_model_prefix, state)
        if renamed not in state and key in state:
            renamed = key
        yield name, renamed.removesuffix(".weight")


def weights_in(model: Any, tensors: Iterable[str], mapping: Sequence[Any]) -> dict[str, str]:
    """Return name of a module in the model -> name in the files, of those that the files have a
    ``weight`` of.

    Args:
        tensors: names in the files. mapping: as of :func:`module_names`.
    """
    names = [x.removesuffix(_WEIGHT) for x in tensors if x.endswith(_WEIGHT)]
    return {target: name for name, target in module_names(model, mapping, names)}


def file_names(model: Any, modules: Iterable[str]) -> dict[str, str] | None:
    """Return name of a module in the model -> what save_pretrained calls it in the files of the
    model's original format; None where that format joins, splits, permutes or takes apart one of
    them, which cannot be done with packed tensors."""
    marks = {}
    for name in modules:
        n, k = model.get_submodule(name).weight.shape
        # These have the shapes of the dense layer's, since conversions look at that.
        for part, shape in (("weight_scale", (n, k)), ("weight", (n, k)), ("bias", (n,))):
            marks[name, part] = torch.empty(shape, device="meta")
    try:
        state = {f"{name}.{part}": mark for (name, part), mark in marks.items()}
        reverted = revert_weight_conversion(model, state)
    except Exception:  # by any conversion of transformers, of what it is not made for
        return None
    keys = {id(mark): key for key, mark in reverted.items()}
    found: dict[str, set[str | None]] = {}
    for (name, part), mark in marks.items():
        key = keys.get(id(mark), "")
        whole = key.removesuffix(f".{part}")
        found.setdefault(name, set()).add(None if whole == key else whole)
    if any(len(places) > 1 or None in places for places in found.values()):
        return None  # another tensor, or parts that are apart in the files
    return {name: str(*places) for name, places in found.items()}
