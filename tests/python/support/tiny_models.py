"""A small model of each architecture that transformers registers: its configuration is cut down by
the names of its fields, so that no list of architectures is kept here.
"""

from __future__ import annotations

import copy
import inspect
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

import torch

LIMIT = 12_000_000  # parameters of what counts as small
# The first pattern that is found in the name of a field says how large it may be.
LARGEST = (
    (r"vocab_size|vocab_size_or_config", 128),
    (r"(key_value|kv)_heads|n_head_kv|num_key_value", 2),
    (r"heads?$", 4),
    (r"qk_rope_head_dim", 8),
    (r"head_dim|kv_channels|d_kv|head_size|qk_nope", 16),
    (r"lora_rank", 16),
    (r"intermediate|ffn|inner|d_ff|mlp_dim|feed_forward", 128),
    (r"layers?$|depth$|n_layer", 2),
    (r"hidden_size|d_model|n_embd|embd|embed|^dim$|hidden_dim|_dim$|width$|channels$", 64),
    (r"max_position|n_positions|max_.*len|n_ctx|max_seq", 64),
    (r"image_size|input_size", 32),
    (r"patch_size", 8),
    (r"experts_per_tok|top_k", 2),
    (r"experts", 4),
)
FEWEST = tuple(row for row in LARGEST if "vocab" in row[0] or "layers" in row[0])
_LAYERS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "depth")
_TOKEN = r"_id$|_index$"  # stays below the size of the vocabulary


def _smaller(fields: dict[str, Any], largest: Any, lists: bool) -> dict[str, Any]:
    layers = next((fields[x] for x in _LAYERS if isinstance(fields.get(x), int)), None)
    found: dict[str, Any] = {}
    for name, value in fields.items():
        found[name] = value
        if isinstance(value, dict) and ("model_type" in value or name.endswith("_config")):
            found[name] = _smaller(value, largest, lists)
        elif isinstance(value, list) and lists and layers is not None and len(value) == layers:
            found[name] = value[:2]
        elif isinstance(value, int) and not isinstance(value, bool):
            if re.search(_TOKEN, name):
                found[name] = min(value, 100)
                continue
            limit = next((size for pattern, size in largest if re.search(pattern, name)), value)
            found[name] = min(value, limit)
    return found


def _candidates(config_class: Any) -> Iterator[Any]:
    """Configurations, the smallest first."""
    whole = config_class().to_dict()
    whole.pop("transformers_version", None)
    for largest, lists in ((LARGEST, True), (LARGEST, False), (FEWEST, True), (FEWEST, False)):
        try:
            yield config_class.from_dict(copy.deepcopy(_smaller(whole, largest, lists)))
        except Exception:  # fields that do not fit each other: there is another candidate
            continue
    yield config_class()


def tiny_config(model_class: Any, config_class: Any) -> tuple[Any, str]:
    """(a configuration, "") by which a model has at most ``LIMIT`` parameters, or (None, why there
    is none)."""
    why = "no configuration without arguments"
    try:
        for config in _candidates(config_class):
            try:
                with torch.device("meta"):
                    model = model_class(copy.deepcopy(config))
            except Exception as error:
                why = f"{type(error).__name__}: {str(error).strip()[:80]}"
                continue
            count = sum(parameter.numel() for parameter in model.parameters())
            if count <= LIMIT:
                return config, ""
            why = f"{count / 1e6:.0f} million parameters"
    except Exception as error:
        why = f"{type(error).__name__}: {str(error).strip()[:80]}"
    return None, why


def registered(mapping: Any) -> Iterator[tuple[str, Any, Any]]:
    """(type of model, class of its configuration, class of the model) of every row of a table such
    as ``MODEL_MAPPING``; rows that transformers itself cannot resolve are left out.

    Args:
        mapping: of ``transformers.models.auto.modeling_auto``.
    """
    for kind, names in mapping._model_mapping.items():
        try:
            config_class = mapping._load_attr_from_module(kind, mapping._config_mapping[kind])
            for name in names if isinstance(names, tuple | list) else (names,):
                yield kind, config_class, mapping._load_attr_from_module(kind, name)
        except Exception:
            continue


def some(rows: Iterator[Any], step: int) -> list[Any]:
    """Every ``step``-th row, since building all takes minutes; all of them with
    MIXED_GEMM_EVERY_MODEL=1 in the environment."""
    return list(rows)[:: 1 if os.environ.get("MIXED_GEMM_EVERY_MODEL") == "1" else step]


def reaches_into_children(model_class: Any) -> bool:
    """Whether the initialisation of a model reads tensors or sizes of a module's child."""
    module = sys.modules.get(model_class.__module__)
    source = "" if module is None else inspect.getsource(module)  # none where a package is missing
    return re.search(r"module\.\w+\.(in_features|weight|bias)\b", source) is not None
