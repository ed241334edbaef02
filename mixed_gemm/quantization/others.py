"""Matrices that are no layers: found, and told why they stay as they are, so that nothing stays
dense without a word.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import nn

from ..nn.expert_tensors import has_hooks
from ..weights.tensor import QuantizedTensor
from .names import named_as_no_linear, skipped_by
from .plain_rows import why_not_rows


def add_other_matrices(model: nn.Module, targets: Collection[str], skipped: dict[str, str]) -> None:
    """Add to ``skipped`` parameters of two dimensions or more that no module holds which could be
    quantized, with the reason.

    Args:
        model: any. targets: names of the modules that are to be quantized.
        skipped: name of a module -> why it is left alone.
    """
    named, modules = {*targets, *skipped}, dict(model.named_modules(remove_duplicate=False))
    seen = {id(x) for name in named for x in modules[name]._parameters.values()}
    for name, module in model.named_modules():
        if name in targets:
            continue
        for part, parameter in module._parameters.items():
            if parameter is None or not _is_float(parameter) or part.endswith("bias"):
                continue
            # A head that is tied to an embedding is named already, which the embedding is too.
            known = id(parameter) in seen and not isinstance(module, nn.Embedding)
            if known or sum(size > 1 for size in parameter.shape) < 2:
                continue
            seen.add(id(parameter))
            whole = name if part == "weight" else f"{name}.{part}".lstrip(".")
            skipped.setdefault(whole, why_no_layer(module, tuple(parameter.shape), whole))


def _is_float(parameter: Any) -> bool:
    return not isinstance(parameter, QuantizedTensor) and bool(torch.is_floating_point(parameter))


def why_no_layer(module: nn.Module | None, shape: tuple[int, ...], name: str) -> str:
    """Tell why a parameter of a module that is no linear and no convolution stays as it is.

    Args:
        module: that holds it; None of a file.
        shape: of the parameter. name: of it, with a dot between components.
    """
    if isinstance(module, nn.Embedding):
        hint = ". Hint: embeddings=True makes them int8" if not why_not_rows(module) else ""
        return f"is an embedding: rows are looked up, not multiplied{hint}"
    if len(shape) == 3 and "experts" in name.split("."):
        if module is None:
            return (
                f"holds {shape[0]} experts in one tensor. Hint: load the model, then "
                "mixed_gemm.quantize_, which takes them apart"
            )
        reason = f"a {type(module).__name__} does not say how it computes with them"
        reason = "it has hooks, which a swap would drop" if has_hooks(module) else reason
        return f"holds {shape[0]} experts in one tensor, and {reason}"
    what = "a file" if module is None else f"a {type(module).__name__}"
    return f"is a tensor of {len(shape)} dimensions of {what}, not the weight of a linear"


def why_no_target(tensor: str, shape: tuple[int, ...], skip: Sequence[str]) -> str:
    """Tell why a floating tensor of a file is no layer to quantize; empty when it is one.

    Args:
        tensor: its name. shape: of it. skip: as of :class:`DenseCheckpoint`.
    """
    if not is_matrix(tensor, shape):
        return "is no matrix"
    name = tensor.removesuffix(".weight")
    if len(shape) != 2 or not tensor.endswith(".weight"):
        return why_no_layer(None, shape, tensor)
    if pattern := skipped_by(name, skip):
        return f"matches skip={pattern!r}"
    if pattern := named_as_no_linear(name):
        return f"is no linear by its name ({pattern})"
    return ""


def is_matrix(tensor: str, shape: tuple[int, ...]) -> bool:
    """Tell whether a tensor of a file may be a matrix of weights."""
    large = sum(size > 1 for size in shape) >= 2
    return large and 0 not in shape and not tensor.endswith("bias")
