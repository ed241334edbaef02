"""Parameters that an architecture keeps in float32 whatever dtype is asked for: the last linear of
each feed-forward block of T5 in float16, which overflows there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers.core_model_loading import build_glob_alternation


def kept_dtypes(model: Any, dtype: torch.dtype) -> Callable[[str], torch.dtype | None]:
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
