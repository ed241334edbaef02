"""The types of refusals where test_refusals.py does not reach: modules, gradients, memory, errors
of others, and the modes of torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.op_calls import CALLS, public, raw
from torch import Tensor

import mixed_gemm
from mixed_gemm.ops import errors


def test_modules_translate_too() -> None:
    linear = mixed_gemm.Linear(64, 32, group_size=32, dtype=torch.float16)
    with pytest.raises(TypeError, match=r"mixed_gemm::fpA_intB_gemm: .*float64"), torch.no_grad():
        linear(torch.zeros(2, 64, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"input must be \[\.\.\., K=64\], got"):
        linear(torch.zeros(2, 128, dtype=torch.float16))
    conv = mixed_gemm.Conv2d(8, 8, 3, bits=4, dtype=torch.float16)
    with pytest.raises(TypeError, match=r"mixed_gemm::qconv2d: .*float64"):
        conv(torch.zeros(1, 8, 4, 4, dtype=torch.float64))


@pytest.mark.parametrize(
    ("op", "name"),
    [
        ("fpA_intB_gemm", "zeros"),
        ("dequantize_weights", "zeros"),
        ("qconv2d", "offsets"),
        ("qconv2d_int8", "weight_scale"),
        ("block_quant_gemm", "offset_b"),
        ("quantize_per_token", "a"),
    ],
)
def test_what_does_not_train_is_refused_by_the_function_too(op: str, name: str) -> None:
    bad = CALLS[op]()
    bad[name].requires_grad_()
    with pytest.raises(RuntimeError, match=rf"^mixed_gemm::{op}: {name} requires grad, but .*Hint"):
        public(op, bad)
    with torch.no_grad():
        public(op, bad)


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
