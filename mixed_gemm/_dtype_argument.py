"""An argument that torch's schema calls ScalarType."""

from __future__ import annotations

import torch

from ._errors import wrong_type


def check_is_dtype(op: str, name: str, value: object) -> None:
    """Raise ``TypeError`` unless it is a ``torch.dtype``. torch takes any integer there, and reads
    beyond its table of dtypes for one that stands for none, before a kernel of ours runs."""
    if not isinstance(value, torch.dtype):
        wrong_type(op, name, "be a torch.dtype", repr(value))
