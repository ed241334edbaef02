"""Every operator of torch whose schema says that it writes, with a quantized weight in every place
where it does: right up to rounding, or refused, and never nothing."""

from __future__ import annotations

import collections
import functools
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.weight_kinds import same_parts
from support.written_ops import (
    OTHERS,
    SHAPE,
    Recorded,
    arguments,
    is_written,
    name_of,
    operator,
    schemas,
)
from torch import nn

from mixed_gemm import Linear, QuantizedTensor
from mixed_gemm.weights.dense import on_dense
from mixed_gemm.weights.writing import rounded_like

ALL = schemas()
# torch runs it below its dispatcher: no subclass of its tensors hears of it.
OUT_OF_REACH = {"aten::set_data.default"}
# They read beyond what they are given here, so that no two runs agree, of dense tensors either.
NOT_REPEATABLE = {
    "aten::_compute_linear_combination.out",
    "aten::_pdist_backward.out",
    "aten::_reshape_alias_copy.out",
}
COLLECTIVES = ("_c10d_functional", "symm_mem")


VIEWS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda w: w,
    "a row": lambda w: w[3],
    "transposed": lambda w: w.t(),
}


@functools.cache
def original() -> Any:
    torch.manual_seed(0)
    return Linear.from_float(nn.Linear(SHAPE[1], SHAPE[0]), "w8a16").weight


def weight() -> Any:
    return original().detach().clone()


@pytest.mark.parametrize("space", sorted({schema.name.split("::")[0] for schema in ALL}))
def test_whatever_a_schema_writes_is_written(space: str) -> None:
    """Each written argument in turn, plain, in a list or by keyword, alone and through a view."""
    value, expected, tried = 0.25, {}, 0
    for name, view in VIEWS.items():
        dense = weight().dequantize()
        view(dense).fill_(value)
        expected[name] = rounded_like(weight(), dense)
    for schema in (x for x in ALL if x.name.split("::")[0] == space):
        for position in range(sum(map(is_written, schema.arguments))):
            for name, view in VIEWS.items():
                w = weight()
                args, kwargs = with_dummies(schema, view(w), position)
                tried += 1
                try:
                    on_dense(Recorded(schema, value), args, kwargs)
                except NotImplementedError as error:
                    assert space in COLLECTIVES, name_of(schema)
                    assert "Hint: dense = weight.dequantize()" in str(error)
                    assert same_parts(w, weight())
                else:
                    assert same_parts(w, expected[name]), (name_of(schema), position, name)
    assert tried


def with_dummies(schema: Any, target: Any, position: int) -> tuple[list[Any], dict[str, Any]]:
    written = [a.name for a in schema.arguments if is_written(a)]
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for argument in schema.arguments:
        value: Any = None
        if is_written(argument):
            tensor = target if argument.name == written[position] else torch.zeros(SHAPE)
            value = [torch.zeros(SHAPE), tensor] if "List" in str(argument.type) else tensor
        if argument.kwarg_only:
            kwargs[argument.name] = value
        else:
            args.append(value)
    return args, kwargs


# --- and those that arguments are at hand for ----------------------------------------------------


def call(schema: Any, target: Any, others: dict[str, Any]) -> None:
    args, kwargs = arguments(schema, target, 0, others)
    torch.manual_seed(1)
    operator(schema)(*args, **kwargs)


def outcome(schema: Any, alone: Any) -> str:
    """What became of a write into a weight, beside the same into its dense value."""
    if operator(schema) is None:
        return "not in Python"
    for others in OTHERS:
        dense = weight().dequantize()
        torch.manual_seed(2)
        try:
            call(schema, dense, others)
        except Exception:
            continue
        storable = dense.shape == SHAPE and bool(dense.isfinite().all())
        want = rounded_like(weight(), dense) if storable else None
        w: QuantizedTensor = weight()
        torch.manual_seed(2)
        alone()  # from here on it is ours
        try:
            call(schema, w, others)
        except Exception as error:
            said = str(error)
            if "cannot be written so" in said and "Hint: weight.data" in said:
                return "refused" if same_parts(w, weight()) else "wrong: refused and written"
            if want is None and "must be finite" in said:
                return "refused" if same_parts(w, weight()) else "wrong: refused and written"
            return f"wrong: {type(error).__name__}: {said[:300]}"
        if want is None:
            return f"wrong: {tuple(dense.shape)} or NaN was taken"
        return "right" if torch.equal(w.dequantize(), want.dequantize()) else "wrong: other values"
    return "no arguments"


def run_from(start: int) -> dict[int, str]:
    """Outcomes of schemas until the process ends: a list of torch's, not all of which check what
    they are given."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)  # OpenMP's threads are not there after a fork
        os.close(read)
        torch.use_deterministic_algorithms(True, warn_only=True)  # memory that is not set is NaN
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 2)
        with os.fdopen(write, "w") as told:
            for i in range(start, len(ALL)):
                print(f"\0{i}\1dense", end="", file=told, flush=True)
                found = outcome(ALL[i], lambda: print("\1ours", end="", file=told, flush=True))
                print(f"\1{found}", end="", file=told, flush=True)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        lines = told.read().split("\0")[1:]
    os.waitpid(child, 0)
    found = {}
    for line in lines:
        index, *said = line.split("\1")
        found[int(index)] = {"dense": "ends the process when dense"}.get(said[-1], said[-1])
    return found


@pytest.mark.filterwarnings("ignore")
def test_operators_that_run_write_what_they_write_into_the_dense_value() -> None:
    found: dict[int, str] = {}
    while len(found) < len(ALL):
        found |= run_from(len(found))
    wrong = {
        name_of(ALL[i]): said for i, said in found.items() if said.startswith(("wrong", "ours"))
    }
    assert {x: y for x, y in wrong.items() if x not in OUT_OF_REACH | NOT_REPEATABLE} == {}
    counts = collections.Counter(found.values())
    assert counts["right"] > 600 and counts["refused"] > 50, counts
