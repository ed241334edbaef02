"""Dense experts that files have as transformers does, all of a layer in one tensor (gpt-oss, Llama
4): where these tensors are.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import (
    WeightConverter,
    WeightRenaming,
    rename_source_key,
)

from ...formats.dense_experts import Stack
from ...formats.errors import CheckpointError
from ...formats.index import TensorIndex
from ...nn.expert import Names
from ...nn.expert_tensors import DOWN, form_of, parts_of
from .experts import names_of
from .readable import on_meta

Shapes = Mapping[str, tuple[int, ...]]


def stacks_of(model: Any) -> dict[str, Shapes]:
    """Name of a module that holds experts in tensors of three dimensions -> the names and shapes of
    these, and of their biases.

    Args:
        model: of transformers, whose experts are not taken apart.
    """
    return {
        name: {part: tuple(x.shape) for part, x in parts_of(module).items()}
        for name, module in model.named_modules()
        if name and form_of(module) is not None
    }


@dataclass(frozen=True)
class Key:
    """A tensor of the files.

    Attributes:
        name: in the files. renamed: by transformers, before it adds the prefix of the base model.
    """

    name: str
    renamed: str


def keys_in(
    model: Any, stacks: Mapping[str, Shapes], index: TensorIndex, mapping: Sequence[Any]
) -> dict[str, Key]:
    """Name of a stacked tensor in the model -> where it is in the files, of those that transformers
    would set as they are there.

    Args:
        model: of transformers. stacks: of :func:`stacks_of`. index: of the files.
        mapping: how transformers converts their keys.
    """
    mapping = copy.deepcopy(list(mapping))  # which remember what they were used for
    renamings = [x for x in mapping if isinstance(x, WeightRenaming)]
    converters = [x for x in mapping if isinstance(x, WeightConverter)]
    wanted = {f"{owner}.{part}": True for owner, parts in stacks.items() for part in parts}
    ends = tuple({f".{part}" for parts in stacks.values() for part in parts})
    known, found = {**dict.fromkeys(model.state_dict(), True), **wanted}, dict[str, Key]()
    for name in index.names():
        key, pattern = rename_source_key(
            name, renamings, converters, model.base_model_prefix, known
        )
        if pattern is None and key.endswith(ends) and key in wanted:
            renamed = name
            for renaming in renamings:
                renamed, _ = renaming.rename_source_key(renamed)
            found[key] = Key(name, renamed)
    return found


def are_stacked_in(model: Any, files: Sequence[Path], mapping: Sequence[Any]) -> bool:
    """Whether files hold all experts of a model as it does.

    Args:
        model: of transformers, whose experts are not taken apart. files: of it; none where it comes
            from elsewhere. mapping: how transformers converts their keys.
    """
    stacks = stacks_of(model)
    if not files or not stacks:
        return False
    found = keys_in(model, stacks, TensorIndex(files[0].parent, files), mapping)
    return len(found) == sum(map(len, stacks.values()))


def refuse_other_shape(index: TensorIndex, key: str, wanted: tuple[int, ...]) -> None:
    """Raise CheckpointError unless a stacked tensor has the shape that it has in the model.

    Args:
        index: of the files. key: name of the tensor. wanted: its shape in the model.
    """
    if index.shape(key) != wanted:
        raise CheckpointError(
            index.file(key),
            key,
            f"must be {list(wanted)}, as the configuration says, got {list(index.shape(key))}",
        )


def experts_in(index: TensorIndex) -> list[Stack]:
    """Where the experts of a folder are, of those that the model of transformers would hold in the
    same tensors; none where its files do not have all of them so.

    Args:
        index: of the folder.

    Raises:
        CheckpointError: a tensor has another shape, or transformers makes no model of config.json.
    """
    model: Any = on_meta(index.path) if index.path.is_dir() else None
    stacks = {} if model is None else stacks_of(model)
    if not stacks:
        return []
    mapping = get_model_conversion_mapping(model)
    keys, names = keys_in(model, stacks, index, mapping), names_of(model, mapping)
    if len(keys) != sum(map(len, stacks.values())):
        return []
    found = []
    for owner in stacks:
        form = form_of(model.get_submodule(owner))
        assert form is not None
        of_owner = {part: keys[f"{owner}.{part}"].name for part in stacks[owner]}
        for part, key in of_owner.items():
            refuse_other_shape(index, key, stacks[owner][part])
        in_files = of_owner[DOWN].rpartition(".")[0]
        found.append(Stack(in_files, form, names or Names(), of_owner, names is None))
    return found
