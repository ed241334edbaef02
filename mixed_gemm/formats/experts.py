"""Quantized experts of a mixture that are not read: how they are known in files, and what is said
of them. Those that are matrices by themselves are read as other linears are, and gpt-oss's by
``gpt_oss_files``.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from ..nn.experts import Experts
from .inside import is_inside

# Why only this library reads a layer of an expert.
BY_ITSELF = "an expert by itself, where other readers look for all experts of a layer in one tensor"
_HINT = (
    "Hint: quantize the dense model with mixed-gemm quantize or mixed_gemm.quantize_, or serve "
    "this file with vLLM"
)


def is_expert(name: str) -> bool:
    """Whether a name is that of one of a mixture's experts, or of all of a layer in one tensor."""
    return "experts" in name.split(".")


def refusal(holder: str = "") -> str:
    """Why quantized experts are not read.

    Args:
        holder: what the model has in their place, in words.
    """
    place = (
        f"the model has {holder}, where quantized ones have no place"
        if holder
        else "they are in one tensor, in a format that is not read"
    )
    return f"quantized experts are not supported: {place}. {_HINT}"


def left_out_by_others(model: nn.Module, layers: Iterable[str]) -> dict[str, str]:
    """Return layer -> why other readers would leave it out, and say nothing: experts of models
    whose files hold all experts of a layer in one tensor.

    Args:
        model: any. layers: names of its quantized layers.
    """
    owners = {
        name for name, x in model.named_modules() if isinstance(x, Experts) and x.in_one_tensor
    }
    return {name: BY_ITSELF for name in layers if owners and is_inside(name, owners)}
