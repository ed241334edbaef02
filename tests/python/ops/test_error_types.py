"""One mistake, one text, whoever finds it: the CPU kernel, the fake kernel on meta and on fake
tensors, and the Python function, which gives it the type of the field.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.faults import CHANGES, bad_scalars
from support.op_calls import (
    CALLS,
    PUBLIC_TENSORS,
    TENSORS,
    Arguments,
    placed,
    public,
    raw,
    registered,
)
from support.paths import agreed, outcome
from torch import Tensor

import mixed_gemm
from mixed_gemm.ops import errors


def test_every_op_is_in_the_table() -> None:
    assert registered() == set(CALLS)


@pytest.mark.parametrize("op", CALLS)
def test_the_calls_of_the_table_are_valid(op: str) -> None:
    outputs = public(op, CALLS[op]())
    assert all(x.is_cpu for x in (outputs if isinstance(outputs, tuple) else (outputs,)))


# Their dtype need not be that of another argument.
OF_ANY_FLOAT = (
    ("awq_dequantize", "scales"),
    ("quantize_fp8", "a"),
    ("quantize_per_token", "a"),
    ("quantize_per_tensor", "a"),
)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("op", "name"), TENSORS)
def test_a_bad_tensor_is_refused_alike_on_every_path(op: str, name: str, change: str) -> None:
    arguments = CALLS[op]()
    mutate, expected = CHANGES[change]
    arguments[name] = mutate(arguments[name])
    error = agreed(op, arguments)
    if expected is TypeError and arguments[name].dtype != CALLS[op]()[name].dtype:
        assert error is not None or (change == "bfloat16" and (op, name) in OF_ANY_FLOAT)
    if error is not None:
        assert isinstance(error, expected), error
        assert str(error).startswith(f"mixed_gemm::{op}: ")


@pytest.mark.parametrize(("op", "name", "value"), bad_scalars())
def test_a_bad_scalar_is_refused_alike_on_every_path(op: str, name: str, value: Any) -> None:
    error = agreed(op, {**CALLS[op](), name: value})
    assert isinstance(error, TypeError if "dtype" in name else ValueError)
    assert str(error).startswith(f"mixed_gemm::{op}: ")


@pytest.mark.parametrize(
    ("op", "changes"),
    [
        ("scaled_mm", {"a": torch.zeros(1, 1, dtype=torch.int8).expand(2, 131072)}),
        ("block_quant_gemm", {"a": torch.zeros(1, 1).expand(2, 131072), "block_size": -1}),
        ("qconv2d", {"input": torch.zeros(1, 40, 1, 1).half().expand(1, 40, 2**13, 2**13)}),
        ("qconv2d_int8", {"input": torch.zeros(1, 6, 1, 1).char().expand(1, 6, 2**15, 2**14)}),
        ("qconv2d_int8", {"input": torch.zeros(1, 8000, 3, 3, dtype=torch.int8)}),
        ("quantize_per_tensor", {"scale": torch.ones(2)}),
        ("awq_gemm", {"qzeros": torch.zeros(7, 9, dtype=torch.int32)}),
        ("gptq_repack", {"qweight": torch.zeros(4, 8, dtype=torch.int32), "bits": 3}),
        ("fpA_intB_gemm", {"a": torch.zeros(3, 64).half()}),
    ],
)
def test_limits_are_refused_alike_on_every_path(op: str, changes: Arguments) -> None:
    arguments = {**CALLS[op](), **changes}
    if changes.get("a") is not None and changes["a"].shape[-1] == 131072:
        n = arguments["b"].shape[1]
        arguments["b"] = torch.zeros(n, 131072, dtype=torch.int8).t()
    if op == "qconv2d_int8":
        arguments["weight"] = torch.zeros(8, arguments["input"].shape[1], 3, 3, dtype=torch.int8)
    assert isinstance(agreed(op, arguments), ValueError)


@pytest.mark.parametrize(("op", "name"), PUBLIC_TENSORS)
@pytest.mark.parametrize("value", [[[1.0]], "text", 3.5])
def test_what_is_no_tensor_is_a_type_error(op: str, name: str, value: Any) -> None:
    bad = {**CALLS[op](), name: value}
    with pytest.raises(TypeError, match=f"for argument '{name}'") as caught:
        public(op, bad)
    assert isinstance(caught.value, RuntimeError)
    with pytest.raises(RuntimeError, match=f"for argument '{name}'"):
        raw(op, bad)


@pytest.mark.parametrize(("op", "name"), TENSORS)
def test_none_for_a_required_tensor_is_a_type_error(op: str, name: str) -> None:
    schema = getattr(torch.ops.mixed_gemm, op).default._schema.arguments
    optional = {x.name for x in schema if str(x.type) == "Optional[Tensor]"}
    bad = {**CALLS[op](), name: None}
    if name in optional:
        assert isinstance(outcome(public, op, bad), list)
        return
    for device in ("cpu", "meta"):
        with pytest.raises(
            TypeError, match=f"^mixed_gemm::{op}: {name} must be a tensor, got None$"
        ):
            public(op, placed(bad, device))


@pytest.mark.parametrize("value", [64.0, "64"])
def test_a_number_of_another_type_is_a_type_error(value: Any) -> None:
    with pytest.raises(TypeError, match="for argument 'group_size'"):
        public("fpA_intB_gemm", {**CALLS["fpA_intB_gemm"](), "group_size": value})


def test_modules_translate_too() -> None:
    linear = mixed_gemm.Linear(64, 32, group_size=32, dtype=torch.float16)
    with pytest.raises(TypeError, match=r"mixed_gemm::fpA_intB_gemm: .*float64"), torch.no_grad():
        linear(torch.zeros(2, 64, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"K of a must fit b_packed"):
        linear(torch.zeros(2, 128, dtype=torch.float16))
    conv = mixed_gemm.Conv2d(8, 8, 3, bits=4, dtype=torch.float16)
    with pytest.raises(TypeError, match=r"mixed_gemm::qconv2d: .*float64"):
        conv(torch.zeros(1, 8, 4, 4, dtype=torch.float64))


# A result or a copy of 2^48 bytes: more than the addresses of a process.
TOO_LARGE: dict[str, Callable[[], Any]] = {
    "the result": lambda: mixed_gemm.quantize_per_token(torch.zeros(1, 16).expand(2**44, 16)),
    "a copy of an argument": lambda: mixed_gemm.quantize_per_token(
        torch.zeros(1, 1).expand(2**23, 2**23)
    ),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_out_of_memory_has_its_own_type(name: str) -> None:
    with pytest.raises(torch.OutOfMemoryError, match="memory"):
        TOO_LARGE[name]()


def test_the_kind_belongs_to_one_text_alone() -> None:
    with pytest.raises(RuntimeError) as caught:
        raw("pack_weights", {"q": torch.zeros(2, 2), "bits": 4})
    text = str(caught.value)
    assert torch.ops.mixed_gemm._error_kind(text) == "type"
    assert torch.ops.mixed_gemm._error_kind(text + ".") == ""


def test_an_error_of_something_else_stays_as_it_is() -> None:
    @errors.translates_errors("awq_repack")
    def broken(qweight: Tensor) -> Tensor:
        raise RuntimeError("of somebody else")

    with pytest.raises(RuntimeError, match=r"^of somebody else$") as caught:
        broken(torch.zeros(1))
    assert type(caught.value) is RuntimeError


@pytest.mark.parametrize("mode", ["compile", "vmap", "autocast", "inference"])
def test_types_survive_other_modes(mode: str) -> None:
    bad = CALLS["fpA_intB_gemm"]()
    a, bad["zeros"] = bad.pop("a"), None
    bad["scales"] = bad["scales"][:2]

    def run(x: Tensor) -> Tensor:
        return mixed_gemm.fpA_intB_gemm(x, **bad)

    text = r"mixed_gemm::fpA_intB_gemm: scales must be .*= \(3, 72\), got \(2, 72\)"
    if mode == "compile":
        with pytest.raises(RuntimeError, match=text):  # of Dynamo, with our text inside
            torch.compile(run, fullgraph=True, backend="eager")(a)
        return
    with pytest.raises(ValueError, match=text):
        if mode == "vmap":
            torch.vmap(run)(a)
        elif mode == "autocast":
            with torch.autocast("cpu", dtype=torch.float16):
                run(a)
        else:
            with torch.inference_mode():
                run(a)


def test_the_decorated_functions_still_compile_and_export() -> None:
    good = CALLS["fpA_intB_gemm"]()
    a = good.pop("a")

    class Module(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return mixed_gemm.fpA_intB_gemm(x, **good)

    expected = Module()(a)
    compiled = torch.compile(Module(), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(a), expected)
    assert torch.equal(torch.export.export(Module(), (a,)).module()(a), expected)
