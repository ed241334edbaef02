"""The contracts as Python has them (mixed_gemm/ops/contract.py), where the refusals of the ops in
test_refusals.py do not reach.
"""

from __future__ import annotations

import resource
from typing import Any

import pytest
import torch
from support.op_calls import CALLS, raw
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import mixed_gemm
from mixed_gemm.ops.contract import contracts

# Bound by a rule that is a function.
BOUND_IN_C = {("gptq_repack", "K")}


def test_every_symbol_is_bound() -> None:
    """One that is not has no value: a shape would be compared with garbage."""
    loose = {
        (name, symbol)
        for name, contract in contracts().items()
        for symbol in contract.used
        if symbol not in contract.symbols
    }
    assert loose == BOUND_IN_C


def test_the_arguments_are_those_of_the_schema() -> None:
    for name, contract in contracts().items():
        schema = getattr(torch.ops.mixed_gemm, name).default._schema
        assert list(contract.arguments) == [x.name for x in schema.arguments], name


def test_a_call_has_room_for_every_argument() -> None:
    """As many of each kind as csrc/ops/call.h and csrc/contract/given.h keep."""
    for name, contract in contracts().items():
        kinds = [kind.removesuffix("?") for kind in contract.arguments.values()]
        assert kinds.count("str") <= 3, name
        assert kinds.count("int[2]") <= 4, name
        assert len(kinds) <= 16, name
        assert len(contract.results) <= 3, name


def test_a_size_that_depends_on_data_is_left_to_the_run() -> None:
    with FakeTensorMode(shape_env=ShapeEnv()) as mode:
        mask = mode.from_tensor(torch.ones(3, dtype=torch.bool))
        given = {
            key: mode.from_tensor(x) if isinstance(x, Tensor) else x
            for key, x in CALLS["fpA_intB_gemm"]().items()
        }
        rows = torch.nonzero(mask).shape[0]
        given["a"] = given["a"].new_empty((rows, 95))  # K that no kernel takes beside b_packed
        assert raw("fpA_intB_gemm", given).shape[1] == 72


def test_a_description_is_checked_as_it_is_written() -> None:
    contract = contracts()["quantize_fp8"]
    a = torch.zeros(2, 3, device="meta")
    contract.check({"a": a, "block_size": None})
    with pytest.raises(mixed_gemm.ops.errors.ArgumentValueError, match=r"at least 1, got -1$"):
        contract.check({"a": a, "block_size": -1})


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def test_texts_of_a_call_are_freed() -> None:
    given: dict[str, Any] = {**CALLS["fpA_intB_gemm"](), "activation": "x" * 2**24}
    peaks = []
    for _ in range(24):
        with pytest.raises(RuntimeError, match="activation must be one of"):
            raw("fpA_intB_gemm", given)
        peaks.append(_peak())
    assert peaks[-1] - peaks[3] < 128 * 1024  # KiB; 20 texts have 320 MiB
