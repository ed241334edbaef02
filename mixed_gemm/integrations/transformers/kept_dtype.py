"""The dtype in which a parameter is loaded: that of the model, or float32 where an architecture
keeps it so whatever is asked for, as T5 does in float16 with the last linear of each feed-forward
block, which overflows there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from transformers.core_model_loading import build_glob_alternation

FLOATS = (torch.float16, torch.bfloat16, torch.float32)


Kept = Callable[[str], torch.dtype | None]


def kept_dtypes(model: Any, dtype: torch.dtype) -> Kept:
    """Return a function of the name of a parameter: the dtype in which transformers loads it of a
    dense model, None where it is that of the model.

    Args:
        model: of transformers. dtype: that it is loaded in.
    """
    plan: dict[str, torch.dtype] = model._get_dtype_plan(dtype)
    if not plan:
        return lambda parameter: None
    pattern, names, _ = build_glob_alternation(list(plan))

    def kept(parameter: str) -> torch.dtype | None:
        found = pattern.search(parameter)
        return None if found is None else plan[names[found.lastgroup or ""]]

    return kept


def asked_dtypes(model: Any, kept: Kept) -> dict[str, torch.dtype]:
    """Return the dtypes in which a dense model's parameters are to be loaded, by their names.

    Args:
        model: of transformers, without values yet. kept: the result of :func:`kept_dtypes`.
    """
    return {name: kept(name) or x.dtype for name, x in model.named_parameters() if _is_plain(x)}


def give_dtypes(model: Any, asked: Mapping[str, torch.dtype]) -> None:
    """Cast dense parameters that transformers left in the dtype of a file. Up to 5.20 it does so
    with each whose name in the file is another than in the model, such as routers of Mixtral.

    Args:
        asked: the result of :func:`asked_dtypes`.
    """
    for prefix, module in model.named_modules():
        if type(module).__module__.startswith("mixed_gemm."):
            continue
        for name, parameter in module._parameters.items():
            wanted = asked.get(f"{prefix}.{name}" if prefix else name)
            if wanted is not None and _is_plain(parameter) and parameter.dtype != wanted:
                parameter.data = parameter.data.to(wanted)


def _is_plain(parameter: Any) -> bool:
    return type(parameter) is nn.Parameter and parameter.dtype in FLOATS
