"""Settings of torch for the time of a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def assigned(owner: Any, **values: Any) -> Iterator[None]:
    """Sets attributes of owner, such as torch.backends.cuda.matmul, and then sets them back.

    By assignments in both directions: modules of torch.backends compute their attributes, so that
    pytest's monkeypatch finds nothing to restore in some of them and deletes what was never there.
    """
    before = {name: getattr(owner, name) for name in values}
    try:
        for name, value in values.items():
            setattr(owner, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


@contextmanager
def without_tf32() -> Iterator[None]:
    """fp32 products and convolutions of torch on CUDA keep all of their 24 bits."""
    with (
        assigned(torch.backends.cuda.matmul, allow_tf32=False),
        assigned(torch.backends.cudnn, allow_tf32=False),
    ):
        yield
