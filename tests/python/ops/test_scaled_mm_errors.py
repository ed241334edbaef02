"""Bad inputs of the 8-bit ops: the argument by name, what was expected with numbers, what came. On
fake tensors the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from problems.scaled import ScaledCase, make
from support.op_calls import changed
from torch._subclasses.fake_tensor import FakeTensorMode

import mixed_gemm

CASE = ScaledCase(m=3, n=8, k=32, bias=True, azp="per_row")
MM, AZP = "mixed_gemm::scaled_mm", "mixed_gemm::scaled_mm_azp"


def arguments(**changes: Any) -> dict[str, Any]:
    """Of a valid scaled_mm_azp, with ``changes``; a callable maps the valid value."""
    p = make(CASE)
    names = ("a", "b", "scale_a", "scale_b", "azp_adj", "azp", "bias")
    valid = {**{name: getattr(p, name) for name in names}, "out_dtype": torch.float16}
    return changed(valid, changes)


# name -> (changed arguments, text)
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a float16": ({"a": lambda a: a.half()}, "a must be int8 or float8_e4m3fn.*float16"),
    "a uint8": ({"a": lambda a: a.view(torch.uint8)}, "a must be int8 or float8.*uint8"),
    "a float8 e5m2": (
        {"a": lambda a: a.view(torch.float8_e5m2)},
        "a must be int8 or float8_e4m3fn.*got float8_e5m2",
    ),
    "a 0-d": ({"a": torch.tensor(1, dtype=torch.int8)}, r"a must be \(..., K\), got a 0-d"),
    "b float8": (
        {"b": lambda b: b.t().view(torch.float8_e4m3fn).t()},
        "b must be int8.*got float8_e4m3fn",
    ),
    "b of another K": (
        {"b": torch.zeros(8, 16, dtype=torch.int8).t()},
        r"b must be \(K, N\) with K=32 of a, got \(16, 8\)",
    ),
    "b not transposed": (
        {"b": lambda b: b.t()},
        r"b must be \(K, N\) with K=32 of a, got \(8, 32\).*transposed",
    ),
    "b row-major": (
        {"b": lambda b: b.contiguous()},
        r"b must be column-major.*got strides \(8, 1\).*Hint",
    ),
    "b 3-d": ({"b": lambda b: b[None]}, r"b must be 2-d \(K, N\), got \(1, 32, 8\)"),
    "scale_a float16": (
        {"scale_a": lambda s: s.half()},
        "scale_a must be float32.*got float16",
    ),
    "scale_a of N": (
        {"scale_a": torch.ones(8)},
        r"scale_a must have one element or be \(M,\) or \(M, 1\), M=3, got \(8,\)",
    ),
    "scale_a transposed": (
        {"scale_a": lambda s: s.t()},
        r"scale_a must have one element or be .*M=3, got \(1, 3\)",
    ),
    "scale_b of M": (
        {"scale_b": torch.ones(3)},
        r"scale_b must have one element or be \(N,\) or \(1, N\), N=8, got \(3,\)",
    ),
    "scale_b transposed": (
        {"scale_b": lambda s: s[:, None]},
        r"scale_b must have one element or be .*N=8, got \(8, 1\)",
    ),
    "bias float32": (
        {"bias": lambda b: b.float()},
        r"bias must be float16.*got float32",
    ),
    "bias of M": ({"bias": torch.ones(3).half()}, r"bias must be \(N,\) = \(8,\), got \(3,\)"),
    "out_dtype float64": (
        {"out_dtype": torch.float64},
        "out_dtype must be float16, bfloat16 or float32, got float64",
    ),
    "out_dtype int8": ({"out_dtype": torch.int8, "bias": None}, "out_dtype must be float16.*"),
    "azp_adj float32": (
        {"azp_adj": lambda x: x.float()},
        "azp_adj must be int32.*got float32",
    ),
    "azp_adj of M": ({"azp_adj": lambda x: x[:3]}, r"azp_adj must be \(N,\).*N=8, got \(3,\)"),
    "azp int8": (
        {"azp": lambda x: x.to(torch.int8)},
        "azp must be int32.*got int8",
    ),
    "azp of one": ({"azp": lambda x: x[:1]}, r"azp must be \(M,\) or \(M, 1\), M=3, got \(1, 1\)"),
    "b on meta": ({"b": lambda b: b.to("meta")}, "all tensors must be on one device.*meta"),
    "scale_b on meta": (
        {"scale_b": lambda s: s.to("meta")},
        "all tensors must be on one device.*meta",
    ),
    "azp with float8": (
        {
            "a": torch.zeros(3, 32).to(torch.float8_e4m3fn),
            "b": torch.zeros(8, 32).to(torch.float8_e4m3fn).t(),
        },
        "a and b must be int8.*zero points are integers.*Hint: scaled_mm",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_eager_refuses_by_name(name: str) -> None:
    changes, text = BAD[name]
    with pytest.raises(RuntimeError, match=f"{AZP}: {text}"):
        mixed_gemm.scaled_mm_azp(**arguments(**changes))
    valid = make(CASE)
    assert valid.ratio(valid.run()) <= 1


@pytest.mark.parametrize("name", BAD)
def test_fake_refuses_by_name(name: str) -> None:
    changes, text = BAD[name]
    real = arguments(**changes)
    with FakeTensorMode() as mode:
        fake = {
            k: mode.from_tensor(v) if isinstance(v, torch.Tensor) else v for k, v in real.items()
        }
        with pytest.raises(RuntimeError, match=f"{AZP}: {text}"):
            mixed_gemm.scaled_mm_azp(**fake)


@pytest.mark.parametrize("name", [x for x in BAD if "azp" not in x])
def test_scaled_mm_refuses_the_same(name: str) -> None:
    changes, text = BAD[name]
    changed = arguments(**changes)
    del changed["azp_adj"], changed["azp"]
    with pytest.raises(RuntimeError, match=f"{MM}: {text}"):
        mixed_gemm.scaled_mm(**changed)


QUANTIZERS: dict[str, tuple[Any, str]] = {
    "int8": (
        lambda: mixed_gemm.quantize_per_token(torch.zeros(2, 2, dtype=torch.int8)),
        "quantize_per_token: a must be float16, bfloat16 or float32, got int8",
    ),
    "0-d": (
        lambda: mixed_gemm.quantize_per_token(torch.tensor(1.0)),
        r"quantize_per_token: a must be \(..., K\), got a 0-d",
    ),
    "scale of rows": (
        lambda: mixed_gemm.quantize_per_tensor(torch.zeros(2, 2), torch.ones(2)),
        r"quantize_per_tensor: scale must have one element \(per tensor\), got \(2,\)",
    ),
    "scale float64": (
        lambda: mixed_gemm.quantize_per_tensor(torch.zeros(2, 2), torch.ones(1).double()),
        "quantize_per_tensor: scale must be float32.*float64",
    ),
    "azp int8": (
        lambda: mixed_gemm.quantize_per_tensor(
            torch.zeros(2, 2), torch.ones(1), torch.ones(1, dtype=torch.int8)
        ),
        "quantize_per_tensor: azp must be int32.*int8",
    ),
}


@pytest.mark.parametrize("name", QUANTIZERS)
@pytest.mark.parametrize("fake", (False, True))
def test_quantizers_refuse_by_name(name: str, fake: bool) -> None:
    call, text = QUANTIZERS[name]
    with pytest.raises(RuntimeError, match=f"mixed_gemm::{text}"):
        if fake:
            with FakeTensorMode():
                call()
        else:
            call()


def test_rounding_refuses_a_gradient() -> None:
    a = torch.zeros(2, 2, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"rounding to int8 has no gradient.*w8a8"):
        mixed_gemm.quantize_per_token(a)
    with pytest.raises(RuntimeError, match="rounding to int8 has no gradient"):
        mixed_gemm.quantize_per_tensor(a, torch.ones(1))
    with pytest.raises(RuntimeError, match=r"rounding to float8 has no gradient.*'fp8'"):
        mixed_gemm.quantize_fp8(a)
