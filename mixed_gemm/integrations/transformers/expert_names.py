"""The names of experts in the files of a model of transformers, without importing it for others."""

from __future__ import annotations

import sys

from torch import nn

from ...nn.expert import Names


def names_in_files(model: nn.Module) -> Names | None:
    """Return the names of an expert's linears in the files of a model of transformers; None where
    these hold experts in tensors of three dimensions, too, and of other models."""
    loaded = sys.modules.get("transformers.modeling_utils")
    if loaded is None or not isinstance(model, loaded.PreTrainedModel):
        return None
    from .experts import names_of

    return names_of(model)
