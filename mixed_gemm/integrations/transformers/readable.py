"""A question asked before a folder is written: whether transformers will find a linear for every
quantized layer of it. For models that it joins or splits as they load, the tensors alone do not
tell.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers.conversion_mapping import get_model_conversion_mapping

from ...formats.errors import CheckpointError
from ...quantization.conv1d import as_linear, is_conv1d
from ...quantization.foreign import naming
from ...quantization.plain import why_no_product
from .experts import take_apart_for
from .names import module_names
from .tying import has_weight_of


def on_meta(folder: Path) -> Any:
    """Build the model without weights; None where the folder names none that transformers has.

    Args:
        folder: with a config.json.
    """
    with naming(folder, "transformers makes no model of its config.json"):
        try:
            config = transformers.AutoConfig.from_pretrained(folder)
            kind = getattr(transformers, (config.architectures or [""])[0], None)
            with torch.device("meta"):
                return None if kind is None else kind(config)
        except (OSError, ValueError, KeyError, ImportError):
            return None


def _only_heads_have(model: Any, table: str) -> bool:
    """Whether what is tied to an embedding may multiply by it."""
    known: dict[str, str] = getattr(model, "all_tied_weights_keys", None) or {}
    weight = f"{table}.weight"
    return all(has_weight_of(model, x, weight) for x, source in known.items() if source == weight)


def refuse_unreadable(
    folder: Path, layers: Mapping[str, tuple[int, ...]], tables: Collection[str] = ()
) -> None:
    """Check that a model has a linear, or an embedding, for each layer.

    Args:
        folder: with the config.json of the model; one without, or of a model that is not of
            transformers, is not checked.
        layers: name in the files -> (N, K). tables: those of them that are embeddings.

    Raises:
        CheckpointError: from_pretrained would refuse a folder with these layers quantized.
    """
    model = on_meta(folder)
    if model is None:
        return
    ignored = model._keys_to_ignore_on_load_unexpected or ()
    mapping = take_apart_for(model, layers, get_model_conversion_mapping(model))
    modules, wrong = dict(model.named_modules()), []
    for name, target in module_names(model, mapping, list(layers)):
        module = modules.get(target)
        if module is None and any(re.search(x, f"{target}.weight") for x in ignored):
            continue
        if module is not None and is_conv1d(module):
            module = as_linear(module)
        kind: Any = nn.Embedding if name in tables else nn.Linear
        fits = isinstance(module, kind) and tuple(module.weight.shape) == layers[name]
        fits = fits and (name not in tables or _only_heads_have(model, target))
        if module is None or not fits or why_no_product(module):
            wrong.append(name)
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise CheckpointError(
            folder,
            "",
            f"{type(model).__name__} has no linear for {', '.join(wrong[:3])}{more}, so that it "
            "could not be loaded again with them quantized. Hint: --skip leaves them dense",
        )
