"""What a module of a file is called in the model: transformers renames keys of older files, and
adds or drops the prefix of the base model. Asked of transformers itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import (
    WeightConverter,
    WeightRenaming,
    rename_source_key,
    revert_weight_conversion,
)


def module_names(model: Any, quantizer: Any, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(name in the file, name in the model) of each module."""
    mapping = get_model_conversion_mapping(model, None, quantizer)
    renamings = [x for x in mapping if isinstance(x, WeightRenaming)]
    converters = [x for x in mapping if isinstance(x, WeightConverter)]
    state = model.state_dict()
    for name in names:
        # As convert_and_load_state_dict_in_model does it, for the weight the module would have.
        key = f"{name}.weight"
        renamed, _ = rename_source_key(key, renamings, converters, model.base_model_prefix, state)
        if renamed not in state and key in state:
            renamed = key
        yield name, renamed.removesuffix(".weight")


def file_names(model: Any, modules: Iterable[str]) -> dict[str, str]:
    """Name of a module in the model -> what save_pretrained calls it in the files. Where it joins
    or splits tensors, which it cannot do with packed ones, the name stays."""
    marks = {f"{name}.weight_scale": torch.tensor(0) for name in modules}
    of = {id(mark): key.removesuffix(".weight_scale") for key, mark in marks.items()}
    found = {name: name for name in of.values()}
    for key, mark in revert_weight_conversion(model, marks).items():
        if id(mark) in of:
            found[of[id(mark)]] = key.removesuffix(".weight_scale")
    return found
