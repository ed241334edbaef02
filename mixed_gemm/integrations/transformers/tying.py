"""Weights that a model ties, and that quantized files have one by one: the files are right.

config.json often goes on saying ``tie_word_embeddings`` where an output head was quantized by
itself: the embedding stays a table of floats, the head has codes of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from torch import nn

TIED = "tie_word_embeddings"  # the attribute of a configuration


def untie(model: nn.Module, quantized: Collection[str], stored: Callable[[str], bool]) -> None:
    """Let modules that are quantized in the files keep weights of their own: transformers neither
    ties them as it loads nor later, and a configuration that has no ties left says so.

    Args:
        model: on its way through from_pretrained, before any module of it is replaced.
        quantized: names of modules in it.
        stored: f(name of a parameter in it) -> whether the files have it as it is.

    Raises:
        ValueError: a weight is tied to one that is quantized, and no file has it.
    """
    for prefix, part in model.named_modules():
        if getattr(part, "all_tied_weights_keys", None):  # a model of transformers
            _untie(part, f"{prefix}." if prefix else "", quantized, stored)


def _untie(
    model: Any, prefix: str, quantized: Collection[str], stored: Callable[[str], bool]
) -> None:
    known: dict[str, str] = model.all_tied_weights_keys
    ours = {
        target: source
        for target, source in known.items()
        if any(_is_weight_of(prefix + x, quantized) for x in (target, source))
    }
    if not ours:
        return
    for target, source in ours.items():
        if not _is_weight_of(prefix + target, quantized) and not stored(prefix + target):
            raise ValueError(
                f"{prefix}{target} is tied to {prefix}{source}, which is quantized, and has no "
                f"values of its own. Hint: {TIED}=False and a tensor for it, or leave both dense"
            )
        del known[target]
    mine: dict[str, str] = model.get_expanded_tied_weights_keys()
    left = {target: source for target, source in mine.items() if target not in ours}
    if left == mine:
        return
    model._tied_weights_keys = left  # a later tie_weights() goes by this
    if not left:
        for config in (model.config, model.config.get_text_config()):
            if getattr(config, TIED, False):
                setattr(config, TIED, False)


def _is_weight_of(parameter: str, modules: Collection[str]) -> bool:
    """Biases are tied as ever: that of a quantized layer is an ordinary parameter."""
    module, _, part = parameter.rpartition(".")
    return part == "weight" and module in modules
