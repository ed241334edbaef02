"""Bad inputs: the class of the exception, and a text that names the
op, the argument and the numbers. After each refusal a valid call in the same process must pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from problems.gemm import Case, make
from support.op_calls import changed
from torch._subclasses.fake_tensor import FakeTensorMode

import mixed_gemm

CASE = Case(m=3, n=72, k=256, dtype=torch.float16, bits=4, group_size=64, zero_mode="sub")
OP = "mixed_gemm::fpA_intB_gemm"


def arguments(**changes: Any) -> dict[str, Any]:
    """Keyword arguments of a valid call, with ``changes``; a callable maps the valid value."""
    p = make(CASE)
    valid: dict[str, Any] = {
        "a": p.a,
        "b_packed": p.b_packed,
        "scales": p.scales,
        "zeros": p.zeros,
        "bias": torch.zeros(CASE.n, dtype=CASE.dtype),
        "pre_scale": torch.ones(CASE.k, dtype=CASE.dtype),
        "bits": 4,
        "group_size": 64,
        "zero_mode": "sub",
        "activation": "identity",
    }
    return changed(valid, changes)


def refuse(exception: type[Exception], text: str, call: Callable[[], object]) -> None:
    with pytest.raises(exception) as caught:
        call()
    message = str(caught.value)
    assert re.search(text, message, re.DOTALL), message
    assert "INTERNAL ASSERT" not in message
    valid = make(CASE)
    assert valid.ratio(valid.run()) <= 1


# name -> (changed arguments, text); all are RuntimeError, eager and on fake tensors alike.
TENSORS: dict[str, tuple[dict[str, Any], str]] = {
    "a float64": ({"a": lambda a: a.double()}, rf"{OP}: a must be.*got float64"),
    "a int8": ({"a": lambda a: a.to(torch.int8)}, rf"{OP}: a must be.*got int8"),
    "a complex": ({"a": lambda a: a.to(torch.complex64)}, rf"{OP}: a must be.*complex64"),
    "a float32 with float16 scales": (
        {"a": lambda a: a.float()},
        rf"{OP}: scales must be .*float32.*got float16",
    ),
    "a 0-d": ({"a": torch.tensor(1.0, dtype=torch.float16)}, rf"{OP}: a must be .*0-d"),
    "a with another K": (
        {"a": lambda a: a[:, :128], "pre_scale": None},
        rf"{OP}: K of a .*K=128.*K=256",
    ),
    "b_packed int32": (
        {"b_packed": lambda b: b.int()},
        rf"{OP}: b_packed must be uint8.*got int32.*",
    ),
    "b_packed unpacked": (
        {"b_packed": lambda b: torch.zeros(72, 256, dtype=torch.uint8)},
        rf"{OP}: .*b_packed.*\(72, 256\)",
    ),
    "b_packed of other rows": (
        {"b_packed": lambda b: b[:64]},
        rf"{OP}: b_packed must be .*\(128, 128\), got \(64, 128\); N=72, K=256, bits=4",
    ),
    "b_packed 1-D": ({"b_packed": lambda b: b.flatten()}, rf"{OP}: b_packed must be .*\(16384,\)"),
    "scales of other groups": (
        {"scales": lambda s: s[:2], "zeros": None},
        rf"{OP}: scales must be \(ceil\(K/group_size\), N\) = \(4, 72\), got \(2, 72\).*K=256.*64",
    ),
    "scales transposed": (
        {"scales": lambda s: s.t(), "b_packed": lambda b: b[:64], "zeros": None, "bias": None},
        rf"{OP}: scales must be .*got \(72, 4\)",
    ),
    "scales 1-D": ({"scales": lambda s: s[0]}, rf"{OP}: scales must be 2-d"),
    "scales bfloat16": (
        {"scales": lambda s: s.bfloat16()},
        rf"{OP}: scales must be float16.*got bfloat16",
    ),
    "zeros float32": ({"zeros": lambda z: z.float()}, rf"{OP}: zeros must be float16.*float32"),
    "zeros packed": (
        {"zeros": lambda z: z[:, :9]},
        rf"{OP}: zeros must be .*\(4, 72\), got \(4, 9\)",
    ),
    "bias float32": (
        {"bias": lambda b: b.float()},
        rf"{OP}: bias must be float16.*got float32",
    ),
    "bias of M": ({"bias": lambda b: b[:3]}, rf"{OP}: bias must be \(N,\) = \(72,\), got \(3,\)"),
    "bias 2-D": ({"bias": lambda b: b[None]}, rf"{OP}: bias must be \(N,\) = .*got \(1, 72\)"),
    "pre_scale of N": (
        {"pre_scale": lambda p: p[:72]},
        rf"{OP}: pre_scale must be \(K,\) = \(256,\), got \(72,\)",
    ),
    "pre_scale float32": (
        {"pre_scale": lambda p: p.float()},
        rf"{OP}: pre_scale must be float16.*got float32",
    ),
}


@pytest.mark.parametrize("name", TENSORS)
def test_gemm_bad_tensor_raises_runtime_error(name: str) -> None:
    changes, text = TENSORS[name]
    refuse(RuntimeError, text, lambda: mixed_gemm.fpA_intB_gemm(**arguments(**changes)))


@pytest.mark.parametrize("mode", ["fake", "meta"])
@pytest.mark.parametrize("name", TENSORS)
def test_gemm_bad_tensor_raises_when_traced_too(name: str, mode: str) -> None:
    changes, text = TENSORS[name]
    bad = arguments(**changes)
    if mode == "meta":
        bad = {k: v.to("meta") if isinstance(v, torch.Tensor) else v for k, v in bad.items()}
        refuse(RuntimeError, text, lambda: mixed_gemm.fpA_intB_gemm(**bad))
        return
    with FakeTensorMode() as fake:
        bad = {k: fake.from_tensor(v) if isinstance(v, torch.Tensor) else v for k, v in bad.items()}
        with pytest.raises(RuntimeError, match=re.compile(text, re.DOTALL)):
            mixed_gemm.fpA_intB_gemm(**bad)


# name -> (changed arguments, text): ValueError from the wrapper, RuntimeError from the raw op.
SCALARS: dict[str, tuple[dict[str, Any], str]] = {
    "bits 3": ({"bits": 3}, rf"{OP}: bits must be 4 or 8, got (bits=)?3"),
    "bits 0": ({"bits": 0}, rf"{OP}: bits must be 4 or 8, got (bits=)?0"),
    "group 0": ({"group_size": 0}, rf"{OP}: group_size must be .*16.*got.*0"),
    "group -2": ({"group_size": -2}, rf"{OP}: group_size must be .*16.*got.*-2"),
    "group 7": ({"group_size": 7}, rf"{OP}: group_size must be .*16.*got.*7"),
    "group 2^31": ({"group_size": 2**31}, rf"{OP}: group_size must .*2147483648.*K=256"),
    "group above K": ({"group_size": 512}, rf"{OP}: group_size must .*512.*K=256.*Hint.*-1"),
    "zero mode": ({"zero_mode": "mul"}, rf"{OP}: zero_mode must be one of .*sub.*add.*mul"),
    "zero mode none": ({"zero_mode": "none"}, rf"{OP}: zero_mode must be one of .*got '?none"),
    "activation": ({"activation": "tanh"}, rf"{OP}: activation must be one of .*silu.*tanh"),
}


@pytest.mark.parametrize("name", SCALARS)
def test_gemm_bad_scalar_raises_value_error(name: str) -> None:
    changes, text = SCALARS[name]
    refuse(ValueError, text, lambda: mixed_gemm.fpA_intB_gemm(**arguments(**changes)))


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("name", SCALARS)
def test_raw_gemm_bad_scalar_raises_runtime_error(name: str, device: str) -> None:
    changes, text = SCALARS[name]
    bad = {
        k: v.to(device) if isinstance(v, torch.Tensor) else v
        for k, v in arguments(**changes).items()
    }
    # The raw op may stop at another broken rule first (bits=3 also breaks the shape of b_packed).
    text = text if name not in ("bits 3", "bits 0") else rf"{OP}: .*bits"
    text = text.replace("got '?none", "got .*none").replace(".*Hint.*-1", "")
    refuse(RuntimeError, text, lambda: torch.ops.mixed_gemm.fpA_intB_gemm(**bad))


def test_gemm_bool_group_size_raises_value_error() -> None:
    bad = arguments(group_size=True)
    refuse(ValueError, "group_size must be an int, got True", lambda: call(bad))


def test_gemm_tensor_group_size_raises_type_error() -> None:
    # The dispatcher would read a 0-d tensor: a hidden sync on CUDA, and a break of graph capture.
    bad = arguments(group_size=torch.tensor(64))
    refuse(TypeError, "group_size must be an int, got a tensor", lambda: call(bad))


def test_gemm_huge_group_size_raises_value_error() -> None:
    bad = arguments(group_size=2**63)
    refuse(ValueError, "group_size must fit in 64 bits, got 9223372036854775808", lambda: call(bad))


@pytest.mark.parametrize("value", [64.0, "64"])
def test_gemm_group_size_of_another_type_is_answered_by_the_dispatcher(value: object) -> None:
    bad = arguments(group_size=value)
    refuse(
        RuntimeError, "Expected a value of type 'int' for argument 'group_size'", lambda: call(bad)
    )


@pytest.mark.parametrize("value", [[[1.0]], [1.0]])
def test_gemm_list_for_a_tensor_is_answered_by_the_dispatcher(value: object) -> None:
    bad = arguments(a=value)
    refuse(RuntimeError, "Expected a value of type 'Tensor' for argument 'a'", lambda: call(bad))


def call(bad: dict[str, Any]) -> torch.Tensor:
    return mixed_gemm.fpA_intB_gemm(**bad)


@pytest.mark.parametrize("name", ["a", "b_packed", "scales"])
def test_gemm_none_for_a_tensor_raises(name: str) -> None:
    bad = arguments(**{name: None})
    text = rf"({name} (is undefined|must be)|argument '{name}'|{name}.*None)"
    refuse(RuntimeError, text, lambda: call(bad))


@pytest.mark.parametrize("name", ["b_packed", "scales", "zeros", "bias", "pre_scale"])
def test_gemm_meta_argument_with_real_a_raises(name: str) -> None:
    bad = arguments(**{name: lambda x: x.to("meta")})
    refuse(RuntimeError, rf"(?=.*cpu)(?=.*{name})(?=.*meta)", lambda: call(bad))


def test_gemm_sparse_a_is_answered_by_the_dispatcher() -> None:
    bad = arguments(a=lambda a: a.to_sparse())
    refuse(NotImplementedError, "Could not run.*Sparse", lambda: call(bad))


@pytest.mark.parametrize("name", ["scales", "zeros", "pre_scale"])
def test_gemm_frozen_argument_that_requires_grad_raises(name: str) -> None:
    bad = arguments(**{name: lambda x: x.requires_grad_()})
    text = rf"{OP}: {name} requires grad, but quantized weights do not train.*Hint"
    refuse(RuntimeError, text, lambda: call(bad))
    with torch.no_grad():
        assert call(bad).shape == (3, 72)


def test_dequantize_zeros_that_require_grad_raise() -> None:
    p = make(CASE)
    zeros = p.zeros.requires_grad_()
    text = "mixed_gemm::dequantize_weights: zeros requires grad"
    options = {"bits": 4, "group_size": 64, "n": 72, "k": 256}
    refuse(
        RuntimeError,
        text,
        lambda: mixed_gemm.dequantize_weights(p.b_packed, p.scales, zeros, **options),
    )


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    ("q", "bits", "exception", "text"),
    [
        (
            torch.zeros(4, 4),
            4,
            RuntimeError,
            "q must be int8.*got float32",
        ),
        (torch.zeros(4, dtype=torch.int8), 4, RuntimeError, "q must be .*(4,|1-D)"),
        (torch.zeros(4, 4, dtype=torch.int8), 5, ValueError, "bits must be 4 or 8, got 5"),
    ],
)
def test_pack_bad_input_raises(
    q: torch.Tensor, bits: int, exception: type[Exception], text: str, device: str
) -> None:
    text = f"mixed_gemm::pack_weights: {text}"
    refuse(exception, text, lambda: mixed_gemm.pack_weights(q.to(device), bits))


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_unpack_wrong_shape_raises(device: str) -> None:
    packed = make(CASE).b_packed.to(device)
    text = r"mixed_gemm::unpack_weights: b_packed must be .*\(64, 128\), got \(128, 128\).*N=64"
    refuse(RuntimeError, text, lambda: mixed_gemm.unpack_weights(packed, 4, 64, 256))


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_dequantize_wrong_groups_or_dtype_raises(device: str) -> None:
    p = make(CASE)
    packed, scales = p.b_packed.to(device), p.scales.to(device)
    op = "mixed_gemm::dequantize_weights"
    options: dict[str, Any] = {"bits": 4, "n": 72, "k": 256}
    refuse(
        RuntimeError,
        rf"{op}: scales must be .*\(8, 72\), got \(4, 72\).*K=256.*group_size=32",
        lambda: mixed_gemm.dequantize_weights(packed, scales, group_size=32, **options),
    )
    refuse(
        RuntimeError,
        rf"{op}: dtype must be float16, bfloat16 or float32, got",
        lambda: mixed_gemm.dequantize_weights(
            packed, scales, group_size=64, dtype=torch.int32, **options
        ),
    )


def test_forced_configuration_of_an_unknown_name_raises() -> None:
    bad = arguments(config="no_such_kernel")
    text = r"mixed_gemm::fpA_intB_gemm_config: config must .*no_such_kernel"
    refuse(RuntimeError, text, lambda: torch.ops.mixed_gemm.fpA_intB_gemm_config(**bad))


@pytest.mark.parametrize("name", ["a", "bias"])
def test_forced_configuration_has_no_gradient(name: str) -> None:
    config = mixed_gemm.plan(3, 72, 256, group_size=64, zero_mode="sub", device="cpu").selected
    bad = arguments(config=config, **{name: lambda x: x.requires_grad_()})
    text = rf"mixed_gemm::fpA_intB_gemm_config: {name} requires grad"
    refuse(RuntimeError, text, lambda: torch.ops.mixed_gemm.fpA_intB_gemm_config(**bad))


@pytest.mark.parametrize("context", ["autocast", "inference", "deterministic", "compile", "vmap"])
def test_gemm_refuses_the_same_inside_other_modes(context: str) -> None:
    bad = arguments(scales=lambda s: s[:2], zeros=None)
    expected = (RuntimeError, r"scales must be .*\(4, 72\), got \(2, 72\)")

    def run() -> object:
        if context == "autocast":
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return call(bad)
        if context == "inference":
            with torch.inference_mode():
                return call(bad)
        if context == "compile":
            return torch.compile(call, fullgraph=True, backend="eager")(bad)
        if context == "vmap":
            rest = {k: v for k, v in bad.items() if k != "a"}
            return torch.vmap(lambda a: mixed_gemm.fpA_intB_gemm(a, **rest))(bad["a"])
        torch.use_deterministic_algorithms(True)
        try:
            return call(bad)
        finally:
            torch.use_deterministic_algorithms(False)

    refuse(*expected, run)
