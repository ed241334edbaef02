"""The small valid call of every op that has a CPU kernel (problems/registry.py), what the tests of
refusals change one argument of, and the ways to make it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from problems import registry

import mixed_gemm
from mixed_gemm.ops.errors import translates_errors

Arguments = dict[str, Any]
CALLS: dict[str, Callable[[], Arguments]] = {
    op: row.of_refusals for op, row in registry.CALLS.items()
}

# (op, tensor), for every tensor of every op.
TENSORS = [
    (op, name)
    for op, make in CALLS.items()
    for name, value in make().items()
    if isinstance(value, torch.Tensor)
]
PUBLIC_TENSORS = [(op, name) for op, name in TENSORS if hasattr(mixed_gemm.ops, op)]


def changed(valid: Arguments, changes: Arguments) -> Arguments:
    """``valid`` with other values of some arguments; a callable maps the valid one."""
    given = {
        name: change(valid[name]) if callable(change) else change
        for name, change in changes.items()
    }
    return {**valid, **given}


def raw(op: str, arguments: Arguments) -> Any:
    return getattr(torch.ops.mixed_gemm, op)(**arguments)


def public(op: str, arguments: Arguments) -> Any:
    """The function of mixed_gemm.ops; of an op without one, torch's with errors of their kinds."""
    call = getattr(mixed_gemm.ops, op, None) or translates_errors(op)(
        getattr(torch.ops.mixed_gemm, op)
    )
    return call(**arguments)


def placed(arguments: Arguments, device: str) -> Arguments:
    return {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}


def registered() -> set[str]:
    """Every op of the library that is meant for callers."""
    names = {
        x.partition("::")[2] for x in torch._C._dispatch_get_all_op_names() if "mixed_gemm::" in x
    }
    return {x.partition(".")[0] for x in names if not x.startswith("_")}
