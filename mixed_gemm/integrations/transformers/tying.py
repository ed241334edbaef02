"""Weights that a model ties, and that quantized files have one by one: the files are right.

config.json often goes on saying ``tie_word_embeddings`` where an output head was quantized by
itself: the embedding stays a table of floats, the head has codes of its own. Where the embedding
alone is quantized, in files of this library, the head multiplies by it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from torch import nn

TIED = "tie_word_embeddings"  # the attribute of a configuration


def untie(
    model: nn.Module, quantized: Collection[str], stored: Callable[[str], bool]
) -> dict[str, str]:
    """Let modules that are quantized in the files keep weights of their own: transformers neither
    ties them as it loads nor later, and a configuration that has no ties left says so.

    Args:
        model: on its way through from_pretrained, before any module of it is replaced.
        quantized: names of modules in it.
        stored: f(name of a parameter in it) -> whether the files have it as it is.

    Returns:
        Name of an output head -> name of the embedding by whose weight it multiplies. These are
        apart while transformers loads, until :func:`tie_again`.

    Raises:
        ValueError: a weight is tied to one that is quantized, and no file has it.
    """
    heads: dict[str, str] = {}
    for prefix, part in model.named_modules():
        if getattr(part, "all_tied_weights_keys", None):  # a model of transformers
            heads |= _untie(model, part, f"{prefix}." if prefix else "", quantized, stored)
    return heads


def tie_again(model: nn.Module, heads: Mapping[str, str]) -> None:
    """Have transformers know of heads what :func:`untie` took from it.

    Args:
        model: as there. heads: what it returned.
    """
    for prefix, part in model.named_modules():
        known = getattr(part, "all_tied_weights_keys", None)
        if known is None:
            continue
        start = f"{prefix}." if prefix else ""
        for head, embedding in heads.items():
            if head.startswith(start) and embedding.startswith(start):
                known[f"{head[len(start) :]}.weight"] = f"{embedding[len(start) :]}.weight"


def has_weight_of(model: nn.Module, head: str, embedding: str) -> bool:
    """Whether a module is a linear that may multiply by the weight of an embedding."""
    linear, table = (model.get_submodule(x.rpartition(".")[0]) for x in (head, embedding))
    return type(linear) is nn.Linear and linear.bias is None and isinstance(table, nn.Embedding)


def _untie(
    whole: nn.Module,
    model: Any,
    prefix: str,
    quantized: Collection[str],
    stored: Callable[[str], bool],
) -> dict[str, str]:
    known: dict[str, str] = model.all_tied_weights_keys
    ours = {
        target: source
        for target, source in known.items()
        if any(_is_weight_of(prefix + x, quantized) for x in (target, source))
    }
    heads = {
        target: source
        for target, source in ours.items()
        if not _is_weight_of(prefix + target, quantized)
        and not stored(prefix + target)
        and has_weight_of(whole, prefix + target, prefix + source)
    }
    for target in heads:
        del known[target], ours[target]
    found = {
        (prefix + target).removesuffix(".weight"): (prefix + source).removesuffix(".weight")
        for target, source in heads.items()
    }
    if not ours:
        return found
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
        return found
    model._tied_weights_keys = left  # a later tie_weights() goes by this
    if not left:
        for config in (model.config, model.config.get_text_config()):
            if getattr(config, TIED, False):
                setattr(config, TIED, False)
    return found


def _is_weight_of(parameter: str, modules: Collection[str]) -> bool:
    """Biases are tied as ever: that of a quantized layer is an ordinary parameter."""
    module, _, part = parameter.rpartition(".")
    return part == "weight" and module in modules
