"""Names of modules in files and in the model: transformers renames keys of older files, and adds or
drops the prefix of the base model. transformers itself is asked.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import (
    PrefixChange,
    WeightConverter,
    WeightRenaming,
    rename_source_key,
    revert_weight_conversion,
)

from .pending import attribute_of

_WEIGHT = ".weight"
_PARTS = ("weight_scale", "weight", "bias")  # by which the names of all tensors of a layer go


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
    if not names:
        return
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
    try:
        keys = _names_of_tensors(model, modules)
    except Exception:  # by any conversion of transformers, of what it is not made for
        return None
    if len({*keys.values()}) < len(keys):
        return None  # two of them are one in the files
    found: dict[str, set[str | None]] = {}
    for (name, part), key in keys.items():
        whole = key.removesuffix(f".{part}")
        found.setdefault(name, set()).add(None if whole == key else whole)
    if any(len(places) > 1 or None in places for places in found.values()):
        return None  # another tensor, or parts that are apart in the files
    return {name: str(*places) for name, places in found.items()}


def _names_of_tensors(model: Any, modules: Iterable[str]) -> dict[tuple[str, str], str]:
    """Return (name of a module, part of it) -> name of the tensor in the files; "" where that has
    another tensor in its place."""
    renamings, converters = _reverted(model)
    found, converted = {}, {}
    for name in modules:
        for part in _PARTS:
            # A mixture has tens of thousands of linears, and what transformers makes for each of
            # their tensors takes it longer than all that is done here.
            key = f"{name}.{part}"
            renamed, pattern = rename_source_key(key, renamings, converters, reverse=True)
            if pattern is None:
                found[name, part] = renamed
            else:
                n, k = model.get_submodule(name).weight.shape
                # It has the shape of the dense layer's, since conversions look at that.
                shape = (n,) if part == "bias" else (n, k)
                converted[name, part] = torch.empty(shape, device="meta")
    marks = {f"{name}.{part}": mark for (name, part), mark in converted.items()}
    places = {id(x): key for key, x in revert_weight_conversion(model, marks).items()}
    return found | {where: places.get(id(mark), "") for where, mark in converted.items()}


def _reverted(model: Any) -> tuple[list[WeightRenaming], list[WeightConverter]]:
    """Return the renamings and the converters that ``revert_weight_conversion`` applies."""
    known = getattr(model, "_weight_conversions", None)
    if known is None:
        every = get_model_conversion_mapping(model, add_legacy=False)
        known = [x for x in every if not isinstance(x, PrefixChange)]
    reverse = [x.reverse_transform() for x in reversed(known)]
    renamings = [x for x in reverse if isinstance(x, WeightRenaming)]
    return renamings, [x for x in reverse if isinstance(x, WeightConverter)]
