"""Every refusal of every op, made from the rules of its contract, on every path that may refuse a
call: the CPU kernel, the fake kernel on meta and on fake tensors, and the Python function. The
text is what the rule says, the same on all of them; Python gives it the type of the field. The
texts themselves are those of tests/data/refusals.txt (test_refusal_texts.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from support import required
from support.contract_rules import Outcome, outcome
from support.faults import bad_scalars, bad_tensors, scalars_beside
from support.op_calls import (
    CALLS,
    PUBLIC_TENSORS,
    TENSORS,
    Arguments,
    changed,
    public,
    raw,
    registered,
)
from support.paths import agreed
from torch import Tensor

FUNCTIONS = required.every()


def schema_of(op: str) -> dict[str, str]:
    schema = getattr(torch.ops.mixed_gemm, op).default._schema.arguments
    return {x.name: str(x.type) for x in schema}


def tensors_of(op: str) -> list[str]:
    return [name for of, name in TENSORS if of == op]


SEVERAL = [op for op in CALLS if len(tensors_of(op)) > 1]


def wrong_answer(op: str, expected: Outcome, error: Exception | None) -> str:
    """Empty where the call was answered as its contract says."""
    text = None if error is None else str(error)
    wanted = expected.fault and expected.fault.text(op)
    if text == wanted:
        of_type = expected.fault is not None and expected.fault.is_type
        return "" if error is None or isinstance(error, TypeError) == of_type else repr(error)
    if text is not None and expected.behind_a_function:
        head = f"mixed_gemm::{op}: "
        known = (pattern for of, _, pattern in FUNCTIONS if of == op)
        if text.startswith(head) and any(re.match(pattern_of(x), text[len(head) :]) for x in known):
            return ""
    return f"wanted {wanted}, got {text}"


def pattern_of(text: str) -> str:
    """A text of the table with any numbers and sizes in place of its own."""
    any_number = re.sub(r"(?<![\w^])-?\d+(?![\w^])", r"-?\\d+", text.rstrip("$"))
    return any_number.replace(r"\(-?\d+, -?\d+\)", r"\([\d, -]*\)").replace("float16", r"\w+")


# --- the table ------------------------------------------------------------------------------------


def test_every_op_is_in_the_table() -> None:
    assert registered() == set(CALLS)


@pytest.mark.parametrize("op", CALLS)
def test_the_calls_of_the_table_are_valid(op: str) -> None:
    given = CALLS[op]()
    assert outcome(op, given).fault is None
    outputs = public(op, given)
    assert all(x.is_cpu for x in (outputs if isinstance(outputs, tuple) else (outputs,)))


# --- one rule broken ------------------------------------------------------------------------------


@pytest.mark.parametrize(("op", "name"), TENSORS)
def test_a_tensor_is_refused_as_its_rules_say(op: str, name: str) -> None:
    torch.manual_seed(0)
    wrong, refused = {}, 0
    for what, tensor in bad_tensors(CALLS[op]()[name]):
        bad = {**CALLS[op](), name: tensor}
        error = agreed(op, bad)
        refused += error is not None
        if answer := wrong_answer(op, outcome(op, bad), error):
            wrong[what] = answer
    assert not wrong
    assert refused > 10
    public(op, CALLS[op]())


@pytest.mark.parametrize(("op", "name", "value"), [*scalars_beside(), *bad_scalars()])
def test_a_scalar_is_refused_as_its_rule_says(op: str, name: str, value: Any) -> None:
    bad = {**CALLS[op](), name: value}
    error = agreed(op, bad)
    assert isinstance(error, TypeError if "dtype" in name else ValueError)
    assert not wrong_answer(op, outcome(op, bad), error)


@pytest.mark.parametrize(("op", "changes", "text"), FUNCTIONS)
def test_a_rule_that_is_a_function_refuses(op: str, changes: Arguments, text: str) -> None:
    bad = changed(CALLS[op](), changes)
    error = agreed(op, bad)
    assert re.search(text, str(error)), error
    assert str(error).startswith(f"mixed_gemm::{op}: ")
    assert outcome(op, bad).behind_a_function


# --- what comes before the rules ------------------------------------------------------------------


@pytest.mark.parametrize(("op", "name"), TENSORS)
def test_none_is_refused_where_a_tensor_must_be(op: str, name: str) -> None:
    bad = {**CALLS[op](), name: None}
    expected = outcome(op, bad)
    assert (expected.fault is None) == (schema_of(op)[name] == "Optional[Tensor]")
    if op in SEVERAL:
        assert not wrong_answer(op, expected, agreed(op, bad))
        return
    assert expected.fault is not None
    with pytest.raises(TypeError, match=f"^{re.escape(expected.fault.text(op))}$"):
        public(op, bad)  # torch itself finds no kernel without a tensor


def refused_by_the_cpu(op: str, bad: Arguments) -> None:
    """As the contract says; a meta or a fake tensor has no storage, and fakes no two devices."""
    expected = outcome(op, bad).fault
    assert expected is not None
    text = f"^{re.escape(expected.text(op))}$"
    for call, error in ((raw, RuntimeError), (public, ValueError)):
        with pytest.raises(error, match=text):
            call(op, bad)
    public(op, CALLS[op]())


@pytest.mark.parametrize("op", SEVERAL)
def test_two_devices_are_named(op: str) -> None:
    for name in tensors_of(op):
        bad = CALLS[op]()
        bad[name] = bad[name].to("meta")
        refused_by_the_cpu(op, bad)


def freed(x: Tensor, nbytes: int) -> Tensor:
    x.untyped_storage().resize_(nbytes)
    return x


def behind_an_offset(x: Tensor) -> Tensor:
    """The same values, some way into a storage: data_ptr() is not null when that is freed."""
    room = torch.empty(x.numel() + 32, dtype=x.dtype)
    return room.as_strided(x.shape, x.stride(), 32).copy_(x)


# A tensor keeps its sizes when its storage is freed (FSDP does that between steps) or shrunk.
STORAGES: dict[str, Callable[[Tensor], Tensor]] = {
    "freed": lambda x: freed(x, 0),
    "freed behind an offset": lambda x: freed(behind_an_offset(x), 0),
    "a byte short": lambda x: freed(x, x.untyped_storage().nbytes() - 1),
}


@pytest.mark.parametrize("how", STORAGES)
@pytest.mark.parametrize(("op", "name"), TENSORS)
def test_a_storage_that_is_gone_is_refused(op: str, name: str, how: str) -> None:
    bad = CALLS[op]()
    bad[name] = STORAGES[how](bad[name].clone(memory_format=torch.preserve_format))
    refused_by_the_cpu(op, bad)


@pytest.mark.parametrize("op", ["quantize_per_token", "awq_gemm"])
def test_a_tensor_without_elements_needs_no_storage(op: str) -> None:
    arguments = CALLS[op]()
    name = tensors_of(op)[0]
    arguments[name] = freed(arguments[name][:0].clone(), 0)
    result = public(op, arguments)
    assert (result[0] if isinstance(result, tuple) else result).shape[0] == 0


# --- what Python or torch's dispatcher answers ----------------------------------------------------


@pytest.mark.parametrize(("op", "name"), PUBLIC_TENSORS)
@pytest.mark.parametrize("value", [[[1.0]], "text", 3.5])
def test_what_is_no_tensor_is_a_type_error(op: str, name: str, value: Any) -> None:
    bad = {**CALLS[op](), name: value}
    with pytest.raises(TypeError, match=f"for argument '{name}'") as caught:
        public(op, bad)
    assert isinstance(caught.value, RuntimeError)
    with pytest.raises(RuntimeError, match=f"for argument '{name}'"):
        raw(op, bad)


@pytest.mark.parametrize("name", ["kernel_size", "stride", "padding", "dilation"])
def test_a_bool_is_no_pair(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be an int or two .*, got True$"):
        public("qconv2d", {**CALLS["qconv2d"](), name: True})


def test_a_configuration_that_there_is_not_is_named() -> None:
    bad = {**CALLS["fpA_intB_gemm_config"](), "config": "no_such_kernel"}
    with pytest.raises(RuntimeError, match=r"fpA_intB_gemm_config: config must .*no_such_"):
        raw("fpA_intB_gemm_config", bad)
