"""Tables that Python, GPU and fuzz tests walk, from the rows in files of this folder (``rows``).
OPS: what computes something, by name, what its problems turn on and how to make one. CALLS: a small
valid call of every public op, and its cases in tests/smoke.py. TRAINED and SHARDED: calls whose
derivatives, and whose results on DTensors, are compared. A new op is a file here; one that is
missing fails test_refusals.py.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from . import quantize, scaled
from .lattice import Sample
from .rows import Call, Op
from .values import seed_of

OPS: dict[str, Op] = {}
CALLS: dict[str, Call] = {}
TRAINED: dict[str, Callable[[], Sample]] = {}
SHARDED: dict[str, Callable[[], Sample]] = {}
for _found in pkgutil.iter_modules([str(Path(__file__).parent)]):  # by name
    if _found.name != __name__.rpartition(".")[2]:
        _module = importlib.import_module(f"{__package__}.{_found.name}")
        for _table in ("OPS", "CALLS", "TRAINED", "SHARDED"):
            globals()[_table].update(getattr(_module, _table, {}))
TYPICAL = {name: op.typical for name, op in OPS.items()}
# Those that choose among configurations.
FORCED = tuple(name for name, op in OPS.items() if op.forced)


def op_of(case: object) -> str:
    return next(name for name, op in OPS.items() if type(case) is op.case)


def label(case: object) -> str:
    """The name of the op in a table of all that was tried, where float8 has a row of its own."""
    if isinstance(case, scaled.ScaledCase) and case.operand != torch.int8:
        return "scaled_mm of float8 by blocks" if case.block else "scaled_mm of float8"
    if isinstance(case, quantize.QuantizeCase) and case.how.startswith("float8"):
        return "quantize_fp8"
    return op_of(case)


def names() -> dict[str, Any]:
    """The names that ``eval(repr(case))`` needs."""
    return {"torch": torch, **{op.case.__name__: op.case for op in OPS.values()}}


def make(case: object, device: str = "cpu", drawn_on: str = "cpu") -> Any:
    """The problem of a case, its values seeded by what it is."""
    return OPS[op_of(case)].make(case, device, seed_of(case), drawn_on)
