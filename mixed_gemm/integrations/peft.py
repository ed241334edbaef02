"""Adapters of peft on the experts of a mixture. peft takes the names of an expert's linears for
those of older models, and looks for the tensor of three dimensions that transformers holds now;
where experts are linears, names are what they say.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from torch import nn

from .._after_import import after_import
from ..nn.experts import Experts

_TABLE = "peft.utils.transformers_weight_conversion"


def _has_experts(values: tuple[Any, ...]) -> bool:
    modules = (x for x in values if isinstance(x, nn.Module))
    return any(isinstance(x, Experts) for model in modules for x in model.modules())


def _unless_apart(
    function: Callable[..., Any], otherwise: Callable[..., Any]
) -> Callable[..., Any]:
    """The function, or what is done instead for a model whose experts are linears.

    Args:
        function: of peft. otherwise: takes its arguments.
    """

    @functools.wraps(function)
    def chosen(*args: Any, **kwargs: Any) -> Any:
        apart = _has_experts((*args, *kwargs.values()))
        return (otherwise if apart else function)(*args, **kwargs)

    return chosen


def _no_change(*args: Any, **kwargs: Any) -> None:
    return None


def _same_tensors(
    model: Any, peft_config: Any, adapter_state_dict: dict[str, Any], *args: Any, **kwargs: Any
) -> dict[str, Any]:
    return adapter_state_dict


def _keep_names() -> None:
    table = importlib.import_module(_TABLE)
    for name, otherwise in (
        ("convert_peft_config_for_transformers", _no_change),
        ("convert_peft_adapter_state_dict_for_transformers", _same_tensors),
    ):
        if (function := getattr(table, name, None)) is not None:  # since peft 0.18
            setattr(table, name, _unless_apart(function, otherwise))


def keep_names_of_experts() -> None:
    """Have peft take the names of experts' linears as they are, once it is imported."""
    after_import(_TABLE, _keep_names)
