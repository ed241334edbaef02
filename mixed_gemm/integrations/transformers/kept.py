"""Parts of files that nothing here computes by, kept on the model for when it is saved: scales of
keys and values, and notes of what cannot be saved.
"""

from __future__ import annotations

import re
from typing import Any

from ...formats.codec import Codec
from ...formats.index import TensorIndex
from ...formats.kv_cache import KEPT, LOST, is_announced
from .names import module_names


def keep_for_saving(model: Any, codec: Codec, index: TensorIndex, mapping: list[Any]) -> None:
    """Read the scales of keys, values and outputs that the model has no place for, which
    transformers then does not miss a place for; and remember what saving loses.

    Args:
        model: of transformers. codec, index: of the files. mapping: how transformers converts
            their keys.
    """
    names = [name for name in index.names() if is_announced(name)]
    own = set(model.state_dict()) if names else set()
    owners = dict.fromkeys(name.rpartition(".")[0] for name in names)
    targets = dict(module_names(model, mapping, list(owners)))
    kept = {}
    for name in names:
        owner, _, role = name.rpartition(".")
        target = f"{targets[owner]}.{role}"
        if target not in own:
            kept[target] = index.load(name)
    setattr(model, KEPT, kept)
    setattr(model, LOST, tuple(codec.lost))
    if kept:
        known = set(model._keys_to_ignore_on_load_unexpected or ())
        patterns = {f"^{re.escape(name)}$" for name in kept}
        model._keys_to_ignore_on_load_unexpected = known | patterns
