"""The experts of a mixture in files: transformers joins them while it reads, and takes them apart
while it writes. Where they are quantized, each stays by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter

from ...formats.index import TensorIndex
from ...nn.expert import Names
from ...nn.expert_tensors import DOWN, GATE_UP, UP
from ...nn.experts import Experts
from ...quantization.experts import take_apart
from ...weights.scheme import FLOAT8, Scheme
from .names import module_names

_NUMBERED = re.compile(r"(^|\.)experts\.\d+\.")
# Tensors of gpt-oss that hold all experts of a layer, of which each reads its own part.
STACKED = r"experts\.\w+_proj_(blocks|scales|bias)$"
_SOURCE = re.compile(r"experts\W*\.\W*(\w+)\\?\.weight\W*$")  # "mlp.experts.*.gate_proj.weight"


def names_of(model: Any, mapping: Sequence[Any] | None = None) -> Names | None:
    """The names of an expert's linears in the files of a model; None where these hold experts in
    tensors of three dimensions.

    Args:
        model: of transformers.
        mapping: how transformers converts the keys of its files; asked for where None is given.
    """
    mapping = get_model_conversion_mapping(model) if mapping is None else mapping
    found: dict[str, list[str]] = {}
    for converter in _joining(mapping):
        sources = [_SOURCE.search(x) for x in converter.source_patterns]
        if all(sources):
            found[_target(converter)] = [x[1] for x in sources if x is not None]
    gate_up, up, down = (found.get(x, []) for x in (GATE_UP, UP, DOWN))
    if len(down) != 1:
        return None
    if len(gate_up) == 2:
        return Names(*gate_up, *down)
    return Names(up=up[0], down=down[0]) if len(up) == 1 else None


def are_apart_in(files: Sequence[Path]) -> bool:
    """Whether files hold experts one by one, as most are published; transformers also writes them
    as it holds them, all of a layer in one tensor.

    Args:
        files: of a model; none where it comes from elsewhere.
    """
    if not files:
        return False
    return any(map(_NUMBERED.search, TensorIndex(files[0].parent, files).names()))


def has_experts(model: Any) -> bool:
    """Whether experts are linears in a model."""
    return any(isinstance(x, Experts) for x in model.modules())


def are_multiplied_together(model: Any) -> bool:
    """Whether the experts of each layer are one product after the other, which a graph may have."""
    return not any(x.why_one_by_one for x in model.modules() if isinstance(x, Experts))


def take_apart_for(model: Any, layers: Iterable[str], mapping: Sequence[Any]) -> list[Any]:
    """Make linears of the experts of a model where the files have quantized ones, each by itself.

    Args:
        model: of transformers, on the meta device. layers: names of the quantized layers of the
            files. mapping: how transformers converts the keys of the files.

    Returns:
        The conversions to load with.
    """
    if not any(_NUMBERED.search(name) for name in layers):
        return list(mapping)
    names = names_of(model, mapping)
    apart = take_apart(model, names)
    if names is None:  # files have the dense experts of another layer in one tensor
        apart.put_back(target for _, target in module_names(model, mapping, list(layers)))
    return leave_apart(model, mapping)


def layers_of_experts(model: Any) -> set[str]:
    """The names of all layers below experts that are linears.

    Args:
        model: any.
    """
    owners = [pair for pair in model.named_modules() if isinstance(pair[1], Experts)]
    return {f"{name}.{x}" for name, owner in owners for x, _ in owner.named_modules()}


def why_own_expert(scheme: Scheme) -> str:
    """Why stock transformers does not read a linear of an expert; empty where it does.

    Args:
        scheme: of the weight.
    """
    integers = scheme.is_weight_only and scheme.zero_mode == "none"
    powers = scheme.weights.scale_dtype == "e8m0"
    if integers or powers or scheme.weight_type == FLOAT8:
        return ""
    return f"an expert stored as {scheme}, of which transformers makes an error or other numbers"


def device_near(model: Any, name: str) -> torch.device:
    """The device of the parameters that are nearest to a module, as the files of transformers were
    read to it; the CPU where none has been read.

    Args:
        model: of transformers. name: of the module.
    """
    while name:
        name = name.rpartition(".")[0]
        for parameter in model.get_submodule(name).parameters():
            if not parameter.is_meta:
                found: torch.device = parameter.device
                return found
    return torch.device("cpu")


def leave_apart(model: Any, mapping: Sequence[Any]) -> list[Any]:
    """The conversions of keys less those that join experts, where these are linears in the model.

    Args:
        model: of transformers. mapping: how transformers converts the keys of its files.
    """
    if not has_experts(model):
        return list(mapping)
    joining = {id(x) for x in _joining(mapping)}
    return [x for x in mapping if id(x) not in joining]


def _joining(mapping: Sequence[Any]) -> list[Any]:
    return [x for x in mapping if isinstance(x, WeightConverter) and _target(x)]


def _target(converter: Any) -> str:
    """The parameter of the experts' module that a conversion makes; empty for others."""
    ends = {re.split(r"\W+", x.rstrip("$"))[-1] for x in converter.target_patterns}
    of_experts = all("experts" in re.split(r"\W+", x) for x in converter.target_patterns)
    (end, *others) = ends
    return end if of_experts and not others and end in (GATE_UP, UP, DOWN) else ""
