"""Fake (meta) kernels: the result of an op without its numbers, and the refusals of the eager op.

A record's ``fake`` takes the op's name with its namespace, for the texts, and every argument of the
schema by name. So it repeats no default, and ops of the same arguments share one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

Fake = Callable[..., Any]


def _kernel(name: str, fake: Fake) -> Callable[..., Any]:
    arguments = getattr(torch.ops.mixed_gemm, name).default._schema.arguments
    names = [x.name for x in arguments]
    defaults = {x.name: x.default_value for x in arguments if x.has_default_value()}

    def kernel(*args: Any, **options: Any) -> Any:
        given = dict(zip(names, args, strict=False))
        return fake(f"mixed_gemm::{name}", **{**defaults, **given, **options})

    return kernel


def register(fakes: Mapping[str, Fake]) -> None:
    for name, fake in fakes.items():
        torch.library.register_fake(f"mixed_gemm::{name}", _kernel(name, fake))
